"""Change of resolution: linear interpolation between pixel centres to more pixels, means to fewer.

Pixels are areas, as with ``align_corners=False`` in torch: pixel i of n covers i/n to (i + 1)/n of its axis.
A window of the result depends only on the part of the source that ``needed`` returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fwcrf.inputs.arrays import Window


def needed(window: Window, grid: Sequence[int], source: Sequence[int]) -> Window:
    """The part of ``source`` that a window of ``grid`` is made from."""
    parts = []
    for part, size, n in zip(window, grid, source, strict=True):
        if size == n:
            low, high = part.start, part.stop
        elif size > n:
            low = math.floor((part.start + 0.5) * n / size - 0.5)
            high = math.floor((part.stop - 0.5) * n / size - 0.5) + 2
        else:
            low, high = part.start * n // size, -(-part.stop * n // size)
        parts.append(slice(max(low, 0), min(high, n)))
    return tuple(parts)


def resample(values: Tensor, window: Window, grid: Sequence[int], source: Sequence[int]) -> Tensor:
    """Values ``(*batch, *needed, channels)`` of a source as ``(*batch, *window, channels)`` of a grid.

    >>> half = resample(torch.tensor([[1.0], [3.0], [5.0], [9.0]]), (slice(0, 2),), grid=(2,), source=(4,))
    >>> half.flatten()
    tensor([2., 7.])
    """
    read = needed(window, grid, source)
    for axis, (part, size, n, have) in enumerate(zip(window, grid, source, read, strict=True)):
        if size != n:
            along = axis - len(grid) - 1
            values = (_between if size > n else _mean)(values, along, part, size, n, have.start)
    return values


def _between(values: Tensor, axis: int, part: slice, size: int, n: int, first: int) -> Tensor:
    at = (torch.arange(part.start, part.stop, dtype=torch.float64) + 0.5) * n / size - 0.5
    return _read_at(values, axis, at.clamp(0, n - 1) - first)


def _mean(values: Tensor, axis: int, part: slice, size: int, n: int, first: int) -> Tensor:
    edges = torch.arange(part.start, part.stop + 1, dtype=torch.float64) * n / size - first
    start = torch.zeros_like(values.narrow(axis, 0, 1), dtype=torch.float64)
    below = torch.cat([start, values.cumsum(axis, dtype=torch.float64)], axis)
    return (_read_at(below, axis, edges).diff(dim=axis) * (size / n)).to(values.dtype)


def _read_at(values: Tensor, axis: int, at: Tensor) -> Tensor:
    """Values at the positions ``at`` along an axis, linear between entries."""
    at = at.to(values.device)
    left = at.floor().long().clamp(max=values.shape[axis] - 1)
    right = (left + 1).clamp(max=values.shape[axis] - 1)
    weight = (at - left).to(values.dtype).view([-1] + [1] * (-axis - 1))
    return torch.lerp(values.index_select(axis, left), values.index_select(axis, right), weight)
