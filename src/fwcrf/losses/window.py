"""Sums over pairs of pixels in a window, exactly: one product of shifted images for each offset."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility
from fwcrf.compatibility import compatibility as read_compatibility
from fwcrf.inputs.numbers import reals
from fwcrf.kernels.kernel import Domain, Kernel, read_kernels
from fwcrf.torch_ops.layout import transposed
from fwcrf.torch_ops.precision import widest

Region = tuple[slice, ...]


def window_sums(
    image: Tensor,
    x: Tensor,
    kernels: Sequence[Kernel],
    compatibility: float | Sequence[float] | Tensor | Compatibility,
    target: Tensor,
    source: Tensor,
    *,
    radius: int,
    spatial_dims: int,
) -> Tensor:
    """sum_ij t_i s_j sum_c K_c,ij <x_i, M_c x_j> over pixels i and j != i of one window, ``(*batch,)``.

    x is ``(*batch, n, L)``, the gates t and s are ``(*batch, n)``.
    """
    num_labels = x.shape[-1]
    domain = Domain.of_image(image, spatial_dims=spatial_dims, dtype=x.dtype)
    assert domain.grid is not None
    grid = domain.grid
    shape = (*x.shape[:-2], *grid)
    t, s, labels = target.view(shape), source.view(shape), transposed(x).unflatten(-1, grid)
    pairs = list(_pairs(grid, radius))
    total = x.new_zeros(x.shape[:-2], dtype=widest(x.device))
    shared = read_compatibility(compatibility, num_labels)
    for kernel in read_kernels(kernels):
        M = shared.weighted(reals(kernel.weight, "weight", torch.float64))
        penalties = transposed(M.apply(x)).unflatten(-1, grid)
        for (here, there), K in zip(pairs, _kernel(kernel, domain, pairs), strict=True):
            # Each pair once, for both directions: K and M are symmetric.
            gate = t[here] * s[there] + t[there] * s[here]
            disagreement = (labels[here] * penalties[there]).sum(-spatial_dims - 1)
            total = total + (gate * K * disagreement).flatten(-spatial_dims).sum(-1, dtype=widest(x.device))
    return total


def _kernel(kernel: Kernel, domain: Domain, pairs: Sequence[tuple[Region, Region]]) -> list[Tensor]:
    """K between the two regions of each pair, normalised over the window and the pixel itself."""
    if kernel.normalization not in ("symmetric", "none"):
        raise ValueError(
            f"normalization={kernel.normalization!r} with a window; expected 'symmetric' or 'none'. "
            "radius=None takes all of them."
        )
    assert domain.grid is not None
    features = kernel.features(domain).mT.unflatten(-1, domain.grid)
    axis = -len(domain.grid) - 1
    found = [torch.exp(-0.5 * (features[here] - features[there]).square().sum(axis)) for here, there in pairs]
    if kernel.normalization == "none":
        return found
    sums = torch.ones_like(features.select(axis, 0))
    for (here, there), K in zip(pairs, found, strict=True):
        sums[here] += K
        sums[there] += K
    scale = sums.rsqrt()
    return [K * scale[here] * scale[there] for (here, there), K in zip(pairs, found, strict=True)]


def _pairs(grid: Sequence[int], radius: int) -> list[tuple[Region, Region]]:
    """Regions of first and second pixels, for half of the offsets: the other half has the same pairs.

    >>> [(a[1:], b[1:]) for a, b in _pairs((3,), 1)]
    [((slice(0, 2, None),), (slice(1, 3, None),))]
    """
    reach = [range(-min(radius, size - 1), min(radius, size - 1) + 1) for size in grid]
    found: list[tuple[Region, Region]] = []
    for offset in product(*reach):
        if offset > (0,) * len(grid):
            first = tuple(slice(max(-o, 0), n - max(o, 0)) for o, n in zip(offset, grid, strict=True))
            second = tuple(slice(max(o, 0), n - max(-o, 0)) for o, n in zip(offset, grid, strict=True))
            found.append(((..., *first), (..., *second)))  # type: ignore[arg-type]
    return found
