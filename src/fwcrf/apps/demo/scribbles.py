"""Brush strokes, drawn into a map of fixed labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Stroke(NamedTuple):
    """Line of constant thickness through points, in pixels. Later strokes cover earlier ones."""

    label: int
    radius: float
    points: Sequence[tuple[float, float]]  # (x, y); the centre of the first pixel is (0, 0)


def drawn(
    strokes: Sequence[Stroke | tuple[int, float, Sequence[tuple[float, float]]]], shape: tuple[int, int]
) -> np.ndarray:
    """Labels of the pixels under the strokes, ``(H, W)`` of int64, -1 elsewhere.

    >>> drawn([(1, 1.0, [(1, 1), (3, 1)])], (3, 6))
    array([[-1,  1,  1,  1, -1, -1],
           [ 1,  1,  1,  1,  1, -1],
           [-1,  1,  1,  1, -1, -1]])
    """
    found = np.full(shape, -1)
    for label, radius, points in strokes:
        ends = np.asarray(points, dtype=float).reshape(-1, 2)
        # A single point is a segment of length 0.
        for start, end in zip(ends, ends[1:] if len(ends) > 1 else ends, strict=False):
            _segment(found, label, radius, start, end)
    return found


def _segment(found: np.ndarray, label: int, radius: float, start: np.ndarray, end: np.ndarray) -> None:
    """Set the pixels of ``found`` within ``radius`` of a segment to ``label``."""
    height, width = found.shape
    left, top = np.floor(np.minimum(start, end) - radius).clip(0, (width, height)).astype(int)
    right, bottom = (np.ceil(np.maximum(start, end) + radius) + 1).clip(0, (width, height)).astype(int)
    if left >= right or top >= bottom:
        return
    x, y = np.arange(left, right) - start[0], np.arange(top, bottom)[:, None] - start[1]
    dx, dy = end - start
    along = ((x * dx + y * dy) / (dx * dx + dy * dy or 1.0)).clip(0.0, 1.0)
    near = (x - along * dx) ** 2 + (y - along * dy) ** 2 <= radius * radius
    found[top:bottom, left:right][near] = label
