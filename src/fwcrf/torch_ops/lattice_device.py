"""The lattice on devices other than the CPU: Triton on GPUs where it works, else plain torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fwcrf.torch_ops import lattice_torch, triton_engine


def build(
    features: Tensor, scale: Sequence[float], low: Sequence[int], high: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``index``, ``weight``, ``order`` and ``neighbors``, without gradients; the host waits once."""
    if triton_engine.serves(features):
        from fwcrf.torch_ops import lattice_build_triton

        found = lattice_build_triton.build(features, scale, low, high)
        if found is not None:
            return found
    with torch.no_grad():
        return lattice_torch.build(features, scale, low, high)


def filter(
    x: Tensor,
    index: Tensor,
    splat: Tensor,
    slice: Tensor | None,
    neighbors: Tensor,
    shift: Tensor | None,
    tap: float,
    identity: float,
    order: int,
) -> Tensor:
    """diag(shift) x + slice (blur + identity I) splat' x, without waiting for the device."""
    arguments = x, index, splat, slice, neighbors, shift, tap, identity, order
    # Triton's additions to vertices are atomic, in any order.
    if triton_engine.serves(x) and not torch.are_deterministic_algorithms_enabled():
        from fwcrf.torch_ops import lattice_triton

        return lattice_triton.filter(*arguments)
    return lattice_torch.filter(*arguments)


def diagonal(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    """The diagonal of slice (blur + identity I) slice', (n,)."""
    arguments = weight, index, order, neighbors, tap, identity
    if triton_engine.serves(weight):
        from fwcrf.torch_ops import lattice_diagonal_triton

        return lattice_diagonal_triton.diagonal(*arguments)
    return lattice_torch.diagonal(*arguments)


def placed(weight: Tensor, exponent: float, factor: Tensor) -> Tensor | None:
    """``lattice.placed`` in one launch; None without Triton."""
    if not triton_engine.serves(weight):
        return None
    from fwcrf.torch_ops import lattice_fit_triton

    return lattice_fit_triton.place(weight, exponent, factor)


def fitted(exact: Tensor, approximate: Tensor, fallback: float, least: float, most: float) -> Tensor | None:
    """``lattice.fitted_scale`` in one launch; None without Triton."""
    if not triton_engine.serves(exact):
        return None
    from fwcrf.torch_ops import lattice_fit_triton

    return lattice_fit_triton.fitted(exact, approximate, fallback, least, most)


def symmetric(
    index: Tensor,  # (*batch, n, corners), as are weight and order
    weight: Tensor,
    order: Tensor,
    neighbors: Tensor,
    factor: Tensor,
    exponent: float,
    tap: float,
    identity: float,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """``lattice.symmetric_lattice``, without waiting for the device; None without Triton."""
    if not triton_engine.serves(weight):
        return None
    from fwcrf.torch_ops import lattice_fit_triton

    placed = lattice_fit_triton.place(weight, exponent, factor).flatten(0, -2)
    index, order = index.flatten(0, -2), order.flatten(0, -2)
    own = diagonal(placed, index, order, neighbors, tap, identity)
    ones = placed.new_ones(1, len(placed), 1)
    sliced = filter(ones, index, placed, None, neighbors, None, tap, identity, 0).view(-1)
    out, shift, minus = lattice_fit_triton.divide(placed, own, sliced)
    points = weight.shape[:-1]
    return out.view(weight.shape), shift.view(points), minus.view(points)
