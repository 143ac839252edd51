"""Change of resolution: linear interpolation between samples to more pixels, means to fewer.

An ``Alignment`` says how two grids lie on each other. A window of the result depends only on the part of the
source that ``needed`` returns.

- ``"centers"``: pixels are areas, and the areas of both grids coincide: pixel i of n covers i/n to (i + 1)/n
  of its axis. This is ``align_corners=False`` of torch.
- ``"corners"``: the centres of the corner pixels coincide. This is ``align_corners=True`` of torch.
- ``(stride, offset)``: sample i of the scores lies at pixel ``offset + stride * i`` of the image. Pixels
  beyond the first and the last sample have the value of that sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.inputs.arrays import Window
from fwcrf.inputs.numbers import real, shown

Align = Literal["corners", "centers"] | tuple[float | Sequence[float], float | Sequence[float]]


class Axis(NamedTuple):
    """Positions of pixels in samples of a source: pixel y lies at (y + before) * times / over + after."""

    size: int  # number of pixels
    source: int  # number of samples
    before: float
    times: float
    over: float
    after: float

    @property
    def step(self) -> float:
        """The distance of two pixels, in samples."""
        return self.times / self.over

    def positions(self, part: slice) -> Tensor:
        """The positions of some pixels, in samples; beyond the border, the position of the border."""
        y = torch.arange(part.start, part.stop, dtype=torch.float64, device="cpu")
        return ((y + self.before) * self.times / self.over + self.after).clamp(0, self.source - 1)

    def edges(self, part: slice) -> tuple[Tensor, Tensor]:
        """Beginnings and ends of the areas of some pixels, in samples: sample i covers i to i + 1."""
        middle, half = self.positions(part) + 0.5, 0.5 * self.step
        return (middle - half).clamp(min=0), (middle + half).clamp(max=self.source)


Alignment = tuple[Axis, ...]


def aligned(image: Sequence[int], scores: Sequence[int], align: Align, name: str = "scores") -> Alignment:
    """The alignment that brings scores to the grid of an image; ``name`` is for messages about the scores."""
    if isinstance(align, str):
        if align not in _ALIGNED:
            raise ValueError(_refusal(align, len(image)))
        return tuple(_ALIGNED[align](size, n) for size, n in zip(image, scores, strict=True))
    strides, offsets = _pair(align, len(image))
    _check_fit(image, scores, strides, offsets, name)
    each = zip(image, scores, strides, offsets, strict=True)
    return tuple(Axis(size, n, -offset, 1.0, stride, 0.0) for size, n, stride, offset in each)


def reverse(alignment: Alignment) -> Alignment:
    """The alignment that brings the image to the grid of the scores."""
    return tuple(Axis(a.source, a.size, -a.after, a.over, a.times, -a.before) for a in alignment)


def needed(window: Window, alignment: Alignment) -> Window:
    """The part of the source that a window of the result is made from."""
    return tuple(_needed(part, axis) for part, axis in zip(window, alignment, strict=True))


def resample(values: Tensor, window: Window, alignment: Alignment) -> Tensor:
    """Values ``(*batch, *needed, channels)`` of a source as ``(*batch, *window, channels)`` of the result.

    >>> half = aligned((2,), (4,), "centers")
    >>> resample(torch.tensor([[1.0], [3.0], [5.0], [9.0]]), (slice(0, 2),), half).flatten()
    tensor([2., 7.])
    """
    for number, (part, axis) in enumerate(zip(window, alignment, strict=True)):
        along, first = number - len(alignment) - 1, _needed(part, axis).start
        values = (_between if axis.step <= 1 else _mean)(values, along, part, axis, first)
    return values


def _centers(size: int, n: int) -> Axis:
    return Axis(size, n, 0.5, n, size, -0.5)


def _corners(size: int, n: int) -> Axis:
    # A single pixel, or a single sample, has no second corner: both grids begin at the same centre.
    return Axis(size, n, 0.0, max(n - 1, 1), max(size - 1, 1), 0.0)


_ALIGNED = {"centers": _centers, "corners": _corners}


def _pair(align: Any, dims: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The strides and the offsets, one per axis."""
    if not isinstance(align, tuple | list) or len(align) != 2:
        raise ValueError(_refusal(align, dims))
    return (
        _each(align[0], dims, "a positive stride", lambda s: 0 < s < math.inf),
        _each(align[1], dims, "an offset", math.isfinite),
    )


def _each(value: Any, dims: int, called: str, holds: Callable[[float], bool]) -> tuple[float, ...]:
    values = tuple(value) if np.ndim(value) == 1 and not isinstance(value, str) else (value,) * dims
    expected = f"{called} in pixels of the image, or {dims} of them, one per axis"
    if len(values) != dims:
        raise ValueError(f"align={shown(value)} has {len(values)} entries; expected {expected}.")
    return tuple(real(v, "align", expected, holds) for v in values)


def _refusal(align: Any, dims: int) -> str:
    return (
        f"align={shown(align)} is not known; expected 'centers', 'corners' or (stride, offset), two numbers "
        f"or two sequences of {dims}: sample i of the scores lies at pixel offset + stride * i."
    )


def _check_fit(
    image: Sequence[int], scores: Sequence[int], strides: Sequence[float], offsets: Sequence[float], name: str
) -> None:
    """Refuse samples that end, or begin, more than a stride away from the border of the image."""
    for axis, (size, n, stride, offset) in enumerate(zip(image, scores, strides, offsets, strict=True)):
        last, most = offset + stride * (n - 1), max(stride, 1.0) * (1 + 1e-6)
        if abs(offset) <= most and abs(last - (size - 1)) <= most:
            continue
        remedy = f"Pass the stride and the offset of the network that made the {name}"
        keep = math.ceil((size - 1 - offset) / stride) + 1
        if 0 < keep < n and abs(offset) <= most:
            remedy += f", or if its input was padded at the end, the first {keep} samples of axis {axis}"
        raise ValueError(
            f"align has stride {stride:g} and offset {offset:g}, and the {name} have {n} samples along axis "
            f"{axis} of the grid, which lie at pixels {offset:g} to {last:g}; expected them to cover the "
            f"{size} pixels of the image, 0 to {size - 1}, up to one stride. {remedy}."
        )


def _needed(part: slice, axis: Axis) -> slice:
    if axis.step <= 1:
        ends = axis.positions(part)
        low, high = math.floor(ends[0]), math.ceil(ends[-1]) + 1
    else:
        begin, end = axis.edges(part)
        low, high = math.floor(begin[0]), math.ceil(end[-1])
    return slice(low, min(high, axis.source))


def _between(values: Tensor, along: int, part: slice, axis: Axis, first: int) -> Tensor:
    at = axis.positions(part) - first
    if at.shape[0] == values.shape[along] and bool((at == torch.arange(at.shape[0], device="cpu")).all()):
        return values
    return _read_at(values, along, at)


def _mean(values: Tensor, along: int, part: slice, axis: Axis, first: int) -> Tensor:
    begin, end = axis.edges(part)
    start = torch.zeros_like(values.narrow(along, 0, 1), dtype=torch.float64)
    below = torch.cat([start, values.cumsum(along, dtype=torch.float64)], along)
    width = (end - begin).to(values.device).view([-1] + [1] * (-along - 1))
    sums = _read_at(below, along, end - first) - _read_at(below, along, begin - first)
    return (sums / width).to(values.dtype)


def _read_at(values: Tensor, along: int, at: Tensor) -> Tensor:
    """Values at the positions ``at`` along an axis, linear between entries."""
    at = at.to(values.device)
    left = at.floor().long().clamp(max=values.shape[along] - 1)
    right = (left + 1).clamp(max=values.shape[along] - 1)
    weight = (at - left).to(values.dtype).view([-1] + [1] * (-along - 1))
    return torch.lerp(values.index_select(along, left), values.index_select(along, right), weight)
