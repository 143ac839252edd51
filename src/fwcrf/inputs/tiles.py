"""A large image in overlapping tiles that each fit into memory.

A tile is solved in a window that extends beyond it by the overlap; only the tile of the result is kept.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fwcrf.inputs.arrays import Window
from fwcrf.inputs.numbers import whole


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


def sample(window: Iterable[slice], least: int = 128) -> Window:
    """Every k-th pixel of a window, at least ``least`` per axis: enough for the shares of labels."""
    return tuple(slice(w.start, w.stop, max(1, (w.stop - w.start) // least)) for w in window)


def most_pixels(parts: Sequence[tuple[slice, Tile]]) -> int:
    """The number of pixels of the largest window."""
    return max(math.prod(tile.shape) for _, tile in parts)


def available_memory() -> int | None:
    """Bytes of memory that this machine, or this process's share of it, still has; None if not known."""
    found = []
    for path, pattern in _AVAILABLE:
        try:
            known = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
        except OSError:
            continue
        if known:
            found.append(int(known[1]) * (1024 if path == "/proc/meminfo" else 1))
    return min(found, default=None)


# Linux: memory that can be had without swapping, and the limits of control groups.
_AVAILABLE = (
    ("/proc/meminfo", r"^MemAvailable:\s+(\d+) kB"),
    ("/sys/fs/cgroup/memory.max", r"^(\d+)$"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", r"^(\d+)$"),
)


def sizes(value: int | Sequence[int], dims: int, name: str, least: int) -> tuple[int, ...]:
    """One number of pixels per axis, from one number for all axes or one for each."""
    each = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) and np.ndim(value) > 0
    values: tuple[int, ...] = tuple(value) if each else (value,) * dims  # type: ignore
    expected = f"a number of pixels, at least {least}, or {dims} of them, one per axis"
    found = tuple(whole(v, name, least, expected) for v in values)
    if len(found) != dims:
        raise ValueError(f"{name}={value!r}; expected {expected}.")
    return found
