"""Kernels along one axis of a grid as products of banded matrices, as the native engine takes them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.printed import in_one_line


class Band(NamedTuple):
    """A banded matrix: row j is weight[j], from column first[j] on; ``first`` does not decrease."""

    first: np.ndarray  # (rows,), int32
    weight: np.ndarray  # (rows, width)

    __repr__ = in_one_line


class Factors(NamedTuple):
    """diag(left) K diag(right) = up middle down; without a middle, up down."""

    down: Band
    middle: Band | None
    up: Band


# Long arrays are numpy's: torch would wake its threads for each of them, which takes longer than the work.
def band(columns: int, start: np.ndarray, values: np.ndarray) -> Band:
    """The matrix whose row j is values[j], from column start[j] on, without the zeros around its band.

    ``start`` does not decrease; values outside the columns 0 ... columns - 1 are 0.
    """
    there = values != 0
    given = values.shape[1]
    leading = there.argmax(-1)
    trailing = np.where(there.any(-1), there[:, ::-1].argmax(-1), given - 1)
    first = np.maximum.accumulate(start + leading)
    width = max(1, int((start + given - 1 - trailing - first).max()) + 1)
    first = np.minimum(first, columns - width)
    at = (first - start)[:, None] + np.arange(width)
    inside = (at >= 0) & (at < given)
    weight = np.where(inside, np.take_along_axis(values, at.clip(0, given - 1), -1), 0)
    return Band(first.astype(np.int32), weight.astype(values.dtype))


def dual(size: int, taps: Tensor) -> Tensor:
    """The pseudo-inverse of the way to the coarse grid without scales, transposed, ``(coarse, size)``.

    Of an axis that has a coarse grid.
    """
    spacing = _spacing(size, taps)
    made = _dual if size * size // spacing <= _KEPT_ENTRIES else _dual.__wrapped__
    return made(size, spacing)


@lru_cache(maxsize=16)  # the next step has the same size and spacing more often than not
def _dual(size: int, spacing: int) -> Tensor:
    begin, end, _ = _coarse_points(size, spacing)
    pixels = _range(size) - (_range(begin - 3, end - 3) * spacing)[:, None]
    w = _way_down(spacing)
    inside = (pixels >= 0) & (pixels < len(w))
    D = torch.where(inside, w[pixels.clamp(0, len(w) - 1)], 0)
    # Coarse points beyond the border have small weights only: the pseudo-inverse leaves such directions out.
    root = torch.linalg.cholesky(D @ D.mT + 1e-9 * torch.eye(len(D), dtype=D.dtype, device="cpu"))
    return torch.cholesky_solve(D, root).float()


def _coarse_points(size: int, spacing: int) -> tuple[int, int, Tensor]:
    """The first coarse point of an axis, the one after the last, and weights of pixels of a group nearby."""
    # Pixels of group p are near the coarse points p - 2 ... p + 3; point p is near groups p - 3 ... p + 2.
    near = _range(-2, 4)
    w = _window(_range(spacing)[:, None] - _points(near, spacing), spacing)
    begin = int(near[w[0] != 0].min())
    return begin, (size - 1) // spacing + int(near[w[(size - 1) % spacing] != 0].max()) + 1, w


def _way_down(spacing: int) -> Tensor:
    """The weights of the pixels near a coarse point."""
    return _window(_range(-3 * spacing, 3 * spacing) - _points(_range(1), spacing), spacing)


_KEPT_ENTRIES = 1 << 18  # of a band that is kept for the next image
_MOST_ENTRIES = 1 << 26  # of a band for the engine: 256 MB in float32
SHORT_AXIS = 1 << 13  # an axis up to this length has no more entries, whatever the bandwidth


def too_wide(size: int, taps: Tensor) -> bool:
    """True if the bands of an axis would take more memory than the engine may use for them."""
    return _entries(size, taps) > _MOST_ENTRIES


def factors(size: int, *axis: Tensor) -> Factors:
    """The factors of one axis, given its taps and the scales of its rows (left) and columns (right)."""
    made = _made if _entries(size, axis[0]) <= _KEPT_ENTRIES else _made.__wrapped__
    return made(size, axis[0].dtype, *(t.detach().numpy().tobytes() for t in axis))


def _entries(size: int, taps: Tensor) -> int:
    """An upper bound on the entries of a band: 6 coarse points per pixel, or as many pixels as taps reach."""
    return size * (6 if _spacing(size, taps) > 1 else min(size, 2 * len(taps) - 1))


def _spacing(size: int, taps: Tensor) -> int:
    """Pixels between the points of the coarse grid; less than 2 if there is none."""
    sigma = _sigma(taps)
    return int(sigma / 1.5 + 1e-3) if taps.dtype == torch.float32 and sigma < size else 1


@lru_cache(maxsize=64)  # the next image has the same size more often than not
def _made(size: int, dtype: torch.dtype, *axis: bytes) -> Factors:
    kind = np.dtype(str(dtype).removeprefix("torch."))
    taps, left, right = (np.frombuffer(values, dtype=kind) for values in axis)
    spacing = _spacing(size, torch.from_numpy(taps.copy()))
    pixels = np.arange(size)
    if spacing < 2:
        start, K = _toeplitz(size, taps)
        columns = start[:, None] + np.arange(K.shape[1])
        identity = Band(pixels.astype(np.int32), np.ones((size, 1), kind))
        return Factors(band(size, start, left[:, None] * K * right[columns]), None, identity)
    begin, end, w = _coarse_points(size, spacing)
    group, place = np.divmod(pixels, spacing)
    up = left[:, None].astype(float) * w.numpy()[place]
    around = np.pad(right.astype(float), ((3 - begin) * spacing, (end + 2) * spacing - size))
    down = (
        np.lib.stride_tricks.sliding_window_view(around, 6 * spacing)[::spacing] * _way_down(spacing).numpy()
    )
    g = _coarse(_sigma(torch.from_numpy(taps.copy())), spacing).numpy().astype(kind)
    return Factors(
        band(size, np.arange(begin - 3, end - 3) * spacing, down.astype(kind)),
        band(end - begin, *_toeplitz(end - begin, g)),
        band(end - begin, group - 2 - begin, up.astype(kind)),
    )


def _toeplitz(size: int, taps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrix taps[|i - j|], (size, size): the first column of each row, and the entries from there on."""
    width = min(size, 2 * len(taps) - 1)
    rows = np.arange(size)
    start = (rows - len(taps) + 1).clip(0, size - width)
    distance = np.abs((rows - start)[:, None] - np.arange(width))
    padded = np.append(taps, np.zeros(1, taps.dtype))
    return start, padded[np.minimum(distance, len(taps))]


# Weights between a pixel and the points of a coarse grid with a spacing of 2, at distances 0.5, 1.5, ... 4.5.
# Every pixel has five points; these weights are the best fit to a Gaussian with sigma = 3.
_NEAR = (1.0, 0.72089, 0.36115, 0.11403, 0.01727)


def _window(distance: Tensor, spacing: int) -> Tensor:
    """Weights between pixels and coarse points at a distance: six points per pixel, five for spacing 2."""
    if spacing == 2:
        near = torch.tensor([*_NEAR, 0.0], dtype=torch.float64, device="cpu")
        return near[distance.abs().long().clamp(max=len(_NEAR))]
    inside = 1 - (distance.double() / (3 * spacing)).square()
    return torch.where(inside > 0, (12 * (inside.clamp(min=0).sqrt() - 1)).exp(), 0)


def _points(number: Tensor, spacing: int) -> Tensor:
    """Coarse points, so placed that each group of ``spacing`` pixels has the same points in reach."""
    return number.double() * spacing + (0.5 if spacing == 2 else -0.5)


@lru_cache(maxsize=64)
def _coarse(sigma: float, spacing: int) -> Tensor:
    """Taps of the coarse filter, by least squares: up middle down is a Gaussian to 4e-5 of its peak."""
    reach = math.ceil(4 * sigma / spacing - 2 - 1e-6)
    far_away = reach + math.ceil(6 * sigma / spacing)
    points = _points(_range(-far_away, far_away + 1), spacing)
    # Pixels i of one period of the coarse grid, and pixels j within 5 sigma: every one, or 64 to 127 in a
    # long period.
    some = max(1, spacing // 64)
    i = _range(0, spacing, some)
    j = _range(-math.ceil(5 * sigma), math.ceil(5 * sigma) + spacing, some)
    near, far = (_window(pixels[:, None] - points, spacing) for pixels in (i, j))
    shifted = [
        near @ far.mT,
        *(near[:, r:] @ far[:, :-r].mT + near[:, :-r] @ far[:, r:].mT for r in range(1, reach + 1)),
    ]
    target = (-((i[:, None] - j).double() / sigma).square() / 2).exp()
    A = torch.stack([t.flatten() for t in shifted], -1)
    return torch.linalg.lstsq(A, target.flatten()[:, None]).solution[:, 0]


def _range(*ends: int) -> Tensor:
    return torch.arange(*ends, device="cpu")


def _sigma(taps: Tensor) -> float:
    """The standard deviation of the Gaussian with these taps."""
    if len(taps) < 2 or taps[1].item() == 0:
        return 0.0
    at = min(len(taps) - 1, max(8, len(taps) // 8))  # where a tap differs from 1 by enough for float32
    known = taps[at].item()
    return at / math.sqrt(-2 * math.log(known)) if 0 < known < 1 else math.inf
