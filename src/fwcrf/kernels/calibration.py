"""Fitting a lattice to the Gaussian it stands for, on a sample of pairs of points.

No constant serves all images: where an image has no colours the lattice has no cells, and what would
have passed through them is lost. So the lattice is compared with the exact kernel on a block of a few
hundred thousand pairs, rows and columns disjoint so that no pair is a point with itself. The same
sample enters both sides, so most of its noise cancels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fwcrf.torch_ops.exact import exact_sums
from fwcrf.torch_ops.lattice import LEAST, MOST, fitted_scale, ratio

if TYPE_CHECKING:
    from fwcrf.kernels.lattice import Lattice

ROWS, _COLUMNS = 128, 2048


class _Sums(NamedTuple):
    """Sums of a sample of rows over a sample of columns, ``(*batch, rows)`` in float64."""

    rows: Tensor  # which points
    exact: Tensor
    lattice: Tensor


@lru_cache(maxsize=16)
def chosen(n: int, rows: int) -> tuple[Tensor, int]:
    """The numbers of points, rows of the sample before its columns, and the number of rows."""
    rows = min(rows, n // 2)
    columns = min(_COLUMNS, n - rows)
    every = torch.arange(rows + columns)
    points = every * n // (rows + columns)
    is_row = every * rows % (rows + columns) < rows
    return torch.cat([points[is_row], points[~is_row]]), rows


def _sample(features: Tensor, lattice: Lattice, rows: int, place: float = 0.0) -> _Sums:
    points, rows = chosen(features.shape[-2], rows)
    points = points.to(features.device)
    if (found := lattice._sampled_sums(features, points, rows, place)) is None:
        given = features.index_select(-2, points)
        ones = features.new_zeros(*features.shape[:-2], len(points), 1)
        ones[..., rows:, :] = 1
        some = lattice.restricted(points)
        if place:
            some = some._placed(place, features.new_ones(*features.shape[:-2], 1))
        own = some.apply(ones).squeeze(-1)[..., :rows]
        found = exact_sums(given[..., :rows, :], given[..., rows:, :]), own
    return _Sums(points[:rows], *(sums.double() for sums in found))


def scale(
    features: Tensor, lattice: Lattice, fallback: float, *, place: float = 0.0, rows: int = ROWS
) -> Tensor:
    """The factor that best fits the row sums of the sample, one per image: ``(*batch, 1)``.

    It is that of the lattice whose points are weighted by their ``place``. ``fallback`` is used where no pair
    of the sample is near enough to tell.
    """
    if features.shape[-2] < 2:
        return features.new_full((*features.shape[:-2], 1), fallback)
    _, exact, own = _sample(features, lattice, rows, place)
    return fitted_scale(exact, own, fallback, features.dtype)


def row_factor(features: Tensor, lattice: Lattice, *, rows: int = 256) -> Tensor:
    """r such that diag(r) K diag(r) has nearly the row sums of the exact kernel, ``(*batch, n)``.

    The ratio of the sums at the sampled points is spread to all points by the lattice itself.
    """
    if features.shape[-2] < 2:
        return torch.ones_like(features[..., 0])
    row, exact, own = _sample(features, lattice, rows)
    sums = features.new_zeros(*features.shape[:-1], 2)
    sums[..., row, 0] = exact.to(sums)
    sums[..., row, 1] = own.to(sums)
    near = lattice.apply(sums).clamp(min=0)
    # Points that no sampled point is near keep the mean ratio.
    mean = ratio(exact.sum(-1, keepdim=True), own.sum(-1, keepdim=True), 1.0)
    mean = mean.clamp(1 / MOST, MOST).to(sums)
    prior = (0.3 * own.mean(-1, keepdim=True)).clamp(min=LEAST).to(sums)
    return ((near[..., 0] + mean * prior) / (near[..., 1] + prior)).clamp(1 / MOST, MOST).sqrt()
