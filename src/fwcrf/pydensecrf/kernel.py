"""The kernels of pydensecrf's model in numpy: its lattice, its scale, its normalizations.

Its filter blurs the axes in one order, so that it is not quite symmetric, and multiplies by 1 / (1 + 2^-d)
for d features, for every image. Nothing is fitted to the Gaussian, and the diagonal of the lattice stays.
Our lattice without calibration has the same results up to float rounding, if points on the border of two
simplices are put into the same simplex; a grid has many such points. So points are embedded in float32
arithmetic here, while the rest of the library uses float64.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fwcrf import _core
from fwcrf.lattice_geometry import MAX_DIMENSION, TAP, refuse_features
from fwcrf.pydensecrf import wide
from fwcrf.runtime import empty, threads_for

# pydensecrf adds this to row sums before it divides by them.
_TINY = 1e-20
# Numbers of ``NormalizationType``: K D^-1 and D^-1 K.
_ONE_SIDED = (1, 2)
# pydensecrf reads points in groups of four, and fills the last group with points at the origin.
_GROUP = 4
# Its lattice coordinates are 16-bit integers. Beyond, no result agrees, and points are embedded in float64.
_FARTHEST = 2**15
# A kept kernel takes about 100 bytes per pixel.
_KEPT_PIXELS = 1 << 20

Size = tuple[int, int]
Pair = tuple[float, float]


class Kernel(NamedTuple):
    """A kernel over n points with d features: weight slice blur splat'.

    The blur takes the axes in ascending order.
    """

    index: np.ndarray  # (n, d + 1), int32: the corners of the simplex around each point
    splat: np.ndarray  # (n, d + 1), float32
    slice: np.ndarray  # (n, d + 1), float32; the same array as splat unless one side is normalised
    order: np.ndarray  # (n, words), int64: axes from corner to corner; no words for more than 16 features
    neighbors: np.ndarray  # (d + 1, vertices, 2), int32
    weight: float


def kernel(features: np.ndarray, normalization: int, weight: float = 1.0) -> Kernel:
    """``weight`` times the normalised filter over float32 features ``(n, d)``.

    ``normalization`` is a number of ``NormalizationType``, which the native core shares.
    """
    n, d = features.shape
    if not 1 <= d <= wide.MOST:
        raise ValueError(
            f"features has {d} rows, one per feature; the lattice takes 1 to {wide.MOST}. Reduce them, "
            "by principal components for example."
        )
    if n % _GROUP:
        # The added points have no values, but make lattice cells through which other points reach each other.
        padded = np.zeros((n + -n % _GROUP, d), np.float32)
        padded[:n] = features
        features = padded
    build = _build if d <= MAX_DIMENSION else _build_wide
    index, table, order, neighbors = build(features)
    index, table = index[:n], table[:n]
    splat = empty(index.shape, np.float32)
    # One array for both sides: a step reads a third less per point.
    slice = empty(index.shape, np.float32) if normalization in _ONE_SIDED else splat
    gain = 1 / (1 + 2.0**-d)
    _core.normalized_weights(
        index, table, neighbors, TAP, normalization, gain, _TINY, 1.0, splat, slice,
        threads_for(8 * index.size),
    )  # fmt: skip
    return Kernel(index, splat, slice, order[:n], neighbors, gain * weight)


def position_kernel(size: Size, sxy: Pair, normalization: int, weight: float) -> Kernel:
    """The kernel over positions of a grid, (width, height), with standard deviations of x and y.

    The last two are kept: images of one size have the same kernel.
    """
    make = _kept_kernel if size[0] * size[1] <= _KEPT_PIXELS else _kept_kernel.__wrapped__
    return make(size, sxy, normalization, weight)


@lru_cache(maxsize=2)
def _kept_kernel(size: Size, sxy: Pair, normalization: int, weight: float) -> Kernel:
    return kernel(positions(size, sxy, 2).reshape(-1, 2), normalization, weight)


def positions(size: Size, sxy: Pair, count: int) -> np.ndarray:
    """``count`` features per pixel, ``(height, width, count)``: first x and y, the rest uninitialised."""
    (width, height), (sx, sy) = size, sxy
    features = empty((height, width, count), np.float32)
    features[..., 0] = np.arange(width, dtype=np.float32) / np.float32(sx)
    features[..., 1] = (np.arange(height, dtype=np.float32) / np.float32(sy))[:, None]
    return features


def _build(features: np.ndarray) -> tuple[np.ndarray, ...]:
    """``index``, weights, ``order`` and ``neighbors`` of the plain lattice, by native code."""
    n, d = features.shape
    finite, lowest, highest = _core.feature_bounds(features)
    if not finite:
        refuse_features(int((~np.isfinite(features)).any(-1).sum()), n)
    scale, factors = _scale(d)
    low, high = _core.quotient_range(lowest, highest, scale)
    single = max(max(map(abs, low)), max(map(abs, high))) * (d + 1) < _FARTHEST
    index, weight = empty((n, d + 1), np.int32), empty((n, d + 1), np.float32)
    order = empty((n, _core.order_words(d + 1)), np.int64)
    neighbors = _core.build_lattice(
        features[None], factors, np.array(low), np.array(high), index[None], weight[None], order[None],
        threads_for(features.size * 8), single=single,
    )  # fmt: skip
    return index, weight, order, neighbors


@lru_cache
def _scale(d: int) -> tuple[list[float], np.ndarray]:
    scale = wide.scales(d)
    return scale, np.array(scale, np.float64)


def _build_wide(features: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same for more features than native code takes; without ``order``, which is for the diagonal."""
    index, weight, neighbors = wide.build(features, wide.scales(features.shape[1]), _FARTHEST)
    return index, weight, np.empty((len(index), 0), np.int64), neighbors
