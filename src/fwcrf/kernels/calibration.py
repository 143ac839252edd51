"""Calibration of a lattice: its scale is fitted to the exact Gaussian, on a sample of pairs of points.

No constant scale fits all images: the lattice has no cells where the image has no colours, and all that
passes through these cells is lost. So the lattice is compared with the exact kernel on a block of a few
hundred thousand pairs. Rows and columns are disjoint, so that no pair is a point with itself. Both kernels
use the same sample, so that most of its noise cancels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.exact import exact_block, exact_sums
from fwcrf.torch_ops.lattice import LEAST, MOST, fitted_scale, ratio
from fwcrf.torch_ops.native import has_values, plain
from fwcrf.torch_ops.precision import wide
from fwcrf.torch_ops.printed import in_one_line

if TYPE_CHECKING:
    from fwcrf.kernels.lattice import Lattice
    from fwcrf.kernels.operator import Normalization, Operator

ROWS, _COLUMNS = 128, 2048
# Vectors of random signs for an error.
_SIGNS = 8


class _Sums(NamedTuple):
    """Sums of a sample of rows over a sample of columns, ``(*batch, rows)``."""

    rows: Tensor  # indices of the points
    exact: Tensor
    lattice: Tensor

    __repr__ = in_one_line


@lru_cache(maxsize=16)
def chosen(n: int, rows: int) -> tuple[np.ndarray, int]:
    """Indices of the sampled points, rows before columns, and the number of rows.

    An array of numpy, because no mode of torch changes a numpy array.
    """
    rows = min(rows, n // 2)
    columns = min(_COLUMNS, n - rows)
    every = np.arange(rows + columns)
    points = every * n // (rows + columns)
    is_row = every * rows % (rows + columns) < rows
    return np.concatenate([points[is_row], points[~is_row]]), rows


def _chosen_on(features: Tensor, n: int, rows: int) -> tuple[Tensor, Tensor, int]:
    """``chosen`` as a tensor, with ones for columns and zeros for rows; copied to a GPU once per size."""
    copied = _copied if has_values(features) and not features.is_cpu else _copied.__wrapped__
    return copied(features.device, features.dtype, n, rows)


@lru_cache(maxsize=16)
def _copied(device: torch.device, dtype: torch.dtype, n: int, rows: int) -> tuple[Tensor, Tensor, int]:
    indices, rows = chosen(n, rows)
    with plain():
        points = torch.from_numpy(indices).to(device, non_blocking=True)
        is_column = torch.ones(len(indices), 1, dtype=dtype, device="cpu")
        is_column[:rows] = 0
        return points, is_column.to(device, non_blocking=True), rows


def _sample(features: Tensor, lattice: Lattice, rows: int, place: float = 0.0) -> _Sums:
    points, is_column, rows = _chosen_on(features, features.shape[-2], rows)
    if (found := lattice._sampled_sums(features, points, rows, place)) is None:
        given = features.index_select(-2, points)
        block = lattice.restricted(points)
        if place:
            block = block._placed(place, features.new_ones(*features.shape[:-2], 1))
        approximate = block.apply(is_column.expand(*features.shape[:-2], -1, -1)).squeeze(-1)[..., :rows]
        found = exact_sums(given[..., :rows, :], given[..., rows:, :]), approximate
    return _Sums(points[:rows], *found)


def scale(
    features: Tensor, lattice: Lattice, fallback: float, *, place: float = 0.0, rows: int = ROWS
) -> Tensor:
    """The factor that best fits the row sums of the sample, one per image: ``(*batch, 1)``.

    The weights of the lattice are first scaled by ``place``: see ``Lattice._placed``. The factor is
    ``fallback`` for an image without near pairs in the sample.
    """
    if features.shape[-2] < 2:
        return features.new_full((*features.shape[:-2], 1), fallback)
    _, exact, approximate = _sample(features, lattice, rows, place)
    return fitted_scale(exact, approximate, fallback, features.dtype)


def signed_error(features: Tensor, K: Operator, normalization: Normalization) -> float:
    """The error of K x for x of random signs on a sample of pairs, relative to the exact kernel.

    In row sums the errors of entries cancel, here they add up. K had a unit diagonal before it was
    normalised, so that its diagonal is the factor by which rows and columns were scaled.
    """
    n = features.shape[-2]
    points, _, rows = _chosen_on(features, n, ROWS)
    row, column = points[:rows], points[rows:]
    x = features.new_zeros(n, _SIGNS)
    signs = np.random.default_rng(0).integers(0, 2, (len(column), _SIGNS))
    x[column] = (2 * torch.from_numpy(signs) - 1).to(x)
    scale = K.diagonal().unsqueeze(-1)
    share = {"before": 1.0, "after": 0.0}.get(normalization, 0.5)  # of the columns in the scale
    weighted = scale[..., column, :] ** share * x[column]
    exact = exact_block(weighted, features[..., row, :], features[..., column, :])
    exact = scale[..., row, :] ** (1 - share) * exact
    return float(ratio((K(x)[..., row, :] - exact).norm(), exact.norm(), 0.0))


def row_factor(features: Tensor, lattice: Lattice, *, rows: int = 256) -> Tensor:
    """r such that diag(r) K diag(r) has nearly the row sums of the exact kernel, ``(*batch, n)``.

    The lattice itself interpolates the ratio of the sums from the sampled points to all points.
    """
    if features.shape[-2] < 2:
        return torch.ones_like(features[..., 0])
    row, *found = _sample(features, lattice, rows)
    exact, approximate = map(wide, found)
    sums = features.new_zeros(*features.shape[:-1], 2)
    sums[..., row, 0] = exact.to(sums)
    sums[..., row, 1] = approximate.to(sums)
    near = lattice.apply(sums).clamp(min=0)
    # Points far from all sampled points get the mean ratio.
    mean = ratio(exact.sum(-1, keepdim=True), approximate.sum(-1, keepdim=True), 1.0)
    mean = mean.clamp(1 / MOST, MOST).to(sums)
    prior = (0.3 * approximate.mean(-1, keepdim=True)).clamp(min=LEAST).to(sums)
    return ((near[..., 0] + mean * prior) / (near[..., 1] + prior)).clamp(1 / MOST, MOST).sqrt()
