"""A large image in overlapping tiles that each fit into memory.

A tile is solved in a window that extends beyond it by the overlap; only the tile of the result is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fwcrf.inputs.arrays import Window


class Tile(NamedTuple):
    """The pixels of a tile, ``core``, and the window in which they are solved."""

    core: Window
    window: Window

    @property
    def inner(self) -> Window:
        """The core, counted from the corner of the window."""
        return tuple(
            slice(c.start - w.start, c.stop - w.start) for c, w in zip(self.core, self.window, strict=True)
        )

    @property
    def origin(self) -> tuple[int, ...]:
        return tuple(w.start for w in self.window)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the window."""
        return tuple(w.stop - w.start for w in self.window)


def cover(grid: Sequence[int], tile: Sequence[int], overlap: Sequence[int]) -> list[Tile]:
    """Tiles of at most the given size that cover a grid, nearly equal in size, in row-major order.

    >>> [(t.core, t.window) for t in cover((10,), (6,), (2,))]
    [((slice(0, 5, None),), (slice(0, 7, None),)), ((slice(5, 10, None),), (slice(3, 10, None),))]
    """
    lines = []
    for size, most, reach in zip(grid, tile, overlap, strict=True):
        count = -(-size // most)
        edges = [size * i // count for i in range(count + 1)]
        cores = [slice(a, b) for a, b in itertools.pairwise(edges)]
        lines.append([(c, slice(max(0, c.start - reach), min(size, c.stop + reach))) for c in cores])
    return [Tile(*zip(*line, strict=True)) for line in itertools.product(*lines)]


def fitted(grid: Sequence[int], overlap: Sequence[int], pixels: float) -> tuple[int, ...]:
    """The size of tiles whose windows have at most ``pixels`` pixels, or else of the smallest useful tiles.

    The whole grid, if it fits. Otherwise cuts are added one by one, each along the axis where it makes the
    windows smallest. No tile becomes narrower than its overlap: most of the work would be done twice.
    """
    counts = [1] * len(grid)
    while _window(grid, counts, overlap) > pixels:
        more = [
            [count + (a == axis) for a, count in enumerate(counts)]
            for axis, (size, reach) in enumerate(zip(grid, overlap, strict=True))
            if size // (counts[axis] + 1) >= max(1, reach)
        ]
        if not more:
            break
        counts = min(more, key=lambda c: _window(grid, c, overlap))
    return tuple(-(-size // count) for size, count in zip(grid, counts, strict=True))


def _window(grid: Sequence[int], counts: Sequence[int], overlap: Sequence[int]) -> int:
    """The number of pixels of the largest window, with ``counts`` tiles along the axes."""
    return math.prod(
        min(size, -(-size // count) + min(count - 1, 2) * reach)
        for size, count, reach in zip(grid, counts, overlap, strict=True)
    )


def plan_tiles(
    grid: Sequence[int],
    images: int,
    *,
    tile: int | Sequence[int] | Literal[False] | None,
    overlap: Sequence[int],
    memory: float,
    bytes_per_pixel: float,
) -> list[tuple[slice, Tile]]:
    """The parts to solve one after the other, each a range of images and a tile.

    As many images at a time as the memory allows, and tiles if one image does not fit.
    """
    pixels = memory / bytes_per_pixel
    if tile is False:
        size: tuple[int, ...] = tuple(grid)
    elif tile is None:
        size = fitted(grid, overlap, pixels)
    else:
        size = sizes(tile, len(grid), "tile", least=1)
    tiles = cover(grid, size, overlap)
    step = max(1, int(pixels // max(math.prod(t.shape) for t in tiles)))
    return [(slice(first, min(first + step, images)), t) for first in range(0, images, step) for t in tiles]


def sizes(value: int | Sequence[int], dims: int, name: str, least: int) -> tuple[int, ...]:
    """One number of pixels per axis, from one number for all axes or one for each."""
    each = isinstance(value, Sequence) and not isinstance(value, str)
    values: tuple[int, ...] = tuple(value) if each else (value,) * dims  # type: ignore
    whole = all(hasattr(v, "__index__") and not isinstance(v, bool) for v in values)
    if len(values) != dims or not whole or min(values) < least:
        raise ValueError(
            f"{name}={value!r}; expected a number of pixels, at least {least}, or {dims} of them, one per "
            "axis."
        )
    return tuple(int(v) for v in values)
