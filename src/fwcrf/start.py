"""Starts for solvers at the price of one to two steps: the model at a lower resolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from fwcrf.compatibility import Compatibility
from fwcrf.energy import Energy
from fwcrf.features import pixels
from fwcrf.inputs.numbers import whole
from fwcrf.kernels.kernel import Domain, Kernel, in_pixels
from fwcrf.pairwise import dense
from fwcrf.solvers import Solver, as_solver, get, minimize
from fwcrf.torch_ops.simplex import softmax


@torch.no_grad()
def coarse(
    kernels: Sequence[Kernel],
    image: Tensor | np.ndarray,
    unary: Tensor,
    *,
    compat: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] = 1.0,
    factor: int = 4,
    solver: str | Solver | None = None,
    num_steps: int = 20,
) -> Tensor:
    """Probabilities ``(*batch, n, L)``, the start x0 that the solution of a smaller model gives.

    Image and unary are averaged over squares of ``factor`` by ``factor`` pixels, position bandwidths are
    divided by ``factor``, and the result is interpolated. A step of the smaller model costs about
    ``factor`` squared times less than a step of the model itself. Regions that take many steps to vanish or
    to grow are settled there, so that few steps from this start are enough; see docs/solvers.md.

    Args:
        kernels: as in ``fwcrf.pairwise.of_image``; their weights are kept.
        image: of two axes, laid out as in ``fwcrf.features.pixels``.
        unary: ``(*batch, n, L)``; +inf forbids a label, here as there.
        solver: ``"anneal-fw"`` with ``num_steps`` steps and mergers if None.

    >>> from fwcrf.kernels import Spatial
    >>> unary = torch.zeros(8 * 12, 2)
    >>> unary[:50, 1] = 1.0
    >>> x0 = coarse([Spatial(3)], torch.zeros(1, 8, 12), unary)
    >>> tuple(x0.shape), x0[[0, -1]].argmax(-1).tolist()
    ((96, 2), [0, 0])
    """
    whole(factor, "factor", 2, "2 or more")
    values, grid = pixels(image)
    num_labels = unary.shape[-1]
    if unary.shape[-2] != values.shape[-2]:
        raise ValueError(
            f"unary has {unary.shape[-2]} nodes and the image {values.shape[-2]} pixels, "
            f"{' x '.join(map(str, grid))}; expected as many. Pass unary as (*batch, n, labels)."
        )
    allowed = unary < torch.inf
    costs = _shrunk(torch.where(allowed, unary, 0.0), grid, factor)
    share = _shrunk(allowed.to(unary), grid, factor)
    # The mean over the pixels that allow the label, if there is one.
    costs = torch.where(share > 0, costs / share, torch.inf)
    small = tuple(-(-side // factor) for side in grid)
    domain = Domain(_shrunk(values, grid, factor), small)
    used = [in_pixels(kernel, float(factor), 2) for kernel in kernels]
    P = dense(
        [kernel.on(domain) for kernel in used],
        num_labels,
        weights=[kernel.weight for kernel in used],
        compat=compat,
    )
    chosen = get("anneal-fw", steps=num_steps, merge=True) if solver is None else as_solver(solver)
    x = minimize(Energy(P, costs), chosen, num_steps=num_steps).probabilities
    x0 = _enlarged(x, small, grid, factor).masked_fill(~allowed, 0.0)
    total = x0.sum(-1, keepdim=True)
    return torch.where(total > 0, x0 / total, softmax(unary, -1.0))


def _shrunk(values: Tensor, grid: Sequence[int], factor: int) -> Tensor:
    """Means over squares, ``(*batch, n', channels)``; squares at the border may be smaller."""
    batch, channels = values.shape[:-2], values.shape[-1]
    maps = values.reshape(-1, *grid, channels).movedim(-1, 1)
    return avg_pool2d(maps, factor, ceil_mode=True).flatten(2).mT.reshape(*batch, -1, channels).contiguous()


def _enlarged(x: Tensor, small: Sequence[int], grid: Sequence[int], factor: int) -> Tensor:
    batch, channels = x.shape[:-2], x.shape[-1]
    maps = x.reshape(-1, *small, channels).movedim(-1, 1)
    size = [factor * side for side in small]
    large = interpolate(maps, size, mode="bilinear", align_corners=False)[..., : grid[0], : grid[1]]
    return large.flatten(2).mT.reshape(*batch, -1, channels).contiguous()
