"""The lattice of points with more features than the native build takes, in numpy.

Vertices are compared by two linear hashes of their coordinates: with up to 257 corners per point, the
coordinates themselves would not fit into memory. A step from vertex to vertex adds a constant to each hash.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

MOST = 256


class Tables(NamedTuple):
    """A lattice over n points with d features, as the native filters take it."""

    index: np.ndarray  # (n, d + 1), int32: the corners of the simplex around each point
    weight: np.ndarray  # (n, d + 1), float32: barycentric coordinates
    neighbors: np.ndarray  # (d + 1, vertices, 2), int32; `vertices` where there is no neighbour


def build(features: np.ndarray, scale: list[float], single_within: float) -> Tables:
    """The tables of float32 features ``(n, d)``; ``torch_ops.lattice.build_native`` in more dimensions.

    Points are embedded in float32 arithmetic if all coordinates are below ``single_within``, else in float64.
    """
    _check(features, scale)
    elevated = _elevated(features.astype(np.float64), scale)
    exact = bool(np.abs(elevated).max() >= single_within)
    if not exact:
        elevated = _elevated(features, scale)
    quotient, axes, weight = _simplices(elevated)
    seed = 0
    while (found := _vertices(quotient, axes, seed)) is None:  # two vertices share a hash: try another
        seed += 1
    return Tables(found[0], weight, found[1])


def _check(features: np.ndarray, scale: list[float]) -> None:
    n = len(features)
    bad = n - int(np.isfinite(features).all(1).sum())
    if bad:
        raise ValueError(
            f"features are NaN or infinite for {bad} of {n} points; expected finite numbers. Check the data "
            "for missing values, and that no bandwidth is too small for its units."
        )
    farthest = float(np.abs(features).max()) * max(scale) * (features.shape[1] + 1)
    if farthest > 2.0**45:
        raise ValueError(
            f"features reach {np.abs(features).max():.3g} standard deviations from the origin, where the "
            "lattice has no resolution. Use larger bandwidths, or subtract the mean from the features."
        )


def _elevated(features: np.ndarray, scale: list[float]) -> np.ndarray:
    """Points in the hyperplane of the lattice, ``(n, d + 1)``, in the arithmetic of the features' dtype."""
    n, d = features.shape
    found = np.empty((n, d + 1), features.dtype)
    total = np.zeros(n, features.dtype)
    for j in range(d, 0, -1):
        c = features[:, j - 1] * features.dtype.type(scale[j - 1])
        found[:, j] = total - features.dtype.type(j) * c
        total = total + c
    found[:, 0] = total
    return found


def _simplices(elevated: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Quotients of the first corner, the axis from each corner to the next, weights: ``(n, d + 1)`` each."""
    n, corners = elevated.shape
    d, kind = corners - 1, elevated.dtype.type
    inverse = kind(1 / corners)
    quotient = np.rint(elevated * inverse)
    residual = elevated - quotient * kind(corners)
    # The rank of a residual is the number of larger ones; of equal ones, the first is the largest.
    rank = np.empty((n, corners), np.int64)
    order = np.argsort(-residual, axis=1, kind="stable")
    np.put_along_axis(rank, order, np.arange(corners)[None], axis=1)
    # The rounded point need not lie on the hyperplane: the extreme residuals move it there.
    whole = quotient.astype(np.int64)
    rank += whole.sum(1, keepdims=True)
    carry = (rank < 0).astype(np.int64) - (rank > d)
    rank += carry * corners
    whole += carry
    axes = np.empty((n, corners), np.int64)
    np.put_along_axis(axes, d - rank, np.arange(corners)[None], axis=1)
    rest = (elevated.astype(np.float64) - whole * float(corners)) * float(inverse)
    ascending = np.take_along_axis(rest, axes, axis=1)
    weight = np.diff(ascending, axis=1, prepend=0.0)
    weight[:, 0] = (ascending[:, 0] - ascending[:, -1]) + 1
    return whole, axes, weight.astype(np.float32)


def _vertices(quotient: np.ndarray, axes: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """``index`` and ``neighbors``; None if two vertices have the same first hash."""
    n, corners = axes.shape
    random = np.random.default_rng(seed)
    hashes = []
    for _ in range(2):
        unit = random.integers(0, 2**64, corners + 1, dtype=np.uint64)  # of each quotient; of the remainder
        unit[corners - 1] = 0  # the last coordinate follows from the others
        first = (quotient.astype(np.uint64) * unit[:corners]).sum(1, dtype=np.uint64)
        steps = (unit[corners] - unit[axes[:, :-1]]).cumsum(1, dtype=np.uint64)
        hashes.append((unit, np.concatenate([first[:, None], first[:, None] + steps], axis=1)))
    (unit, one), (second, two) = hashes
    keys, at, index = np.unique(one.reshape(-1), return_index=True, return_inverse=True)
    index = index.reshape(n, corners)
    check = two.reshape(-1)[at]
    if (two != check[index]).any():
        return None
    remainder = at % corners
    count = len(keys)
    neighbors = np.full((corners, count, 2), count, np.int32)
    for axis in range(corners):
        # One step down an axis: every coordinate falls by one, the coordinate of the axis rises by d.
        goal, proof = (_down(k, u, remainder, axis) for k, u in ((keys, unit), (check, second)))
        place = np.minimum(np.searchsorted(keys, goal), count - 1)
        hit = np.flatnonzero((keys[place] == goal) & (check[place] == proof))
        neighbors[axis, hit, 0] = place[hit]
        neighbors[axis, place[hit], 1] = hit
    return index.astype(np.int32), neighbors


def _down(key: np.ndarray, unit: np.ndarray, remainder: np.ndarray, axis: int) -> np.ndarray:
    """The hashes of the vertices one step down an axis."""
    corners = len(unit) - 1
    with np.errstate(over="ignore"):  # hashes are numbers modulo 2^64
        inner = unit[axis] - unit[corners]
        wrapped = unit[axis] - unit[:corners].sum(dtype=np.uint64) + np.uint64(corners - 1) * unit[corners]
    return key + np.where(remainder == 0, wrapped, inner)


def scales(d: int) -> list[float]:
    """The factors of the features in pydensecrf's lattice, rounded as there."""
    deviation = np.float32(math.sqrt(2 / 3) * (d + 1))
    return [float(np.float32(float(deviation) / math.sqrt((i + 1) * (i + 2)))) for i in range(d)]
