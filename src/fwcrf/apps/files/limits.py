"""Memory limits for files, checked before decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from fwcrf.apps.files.errors import FileError

DEFAULT_LIMIT = 4 << 30


def check_size(path: Path | str, shape: Sequence[int], itemsize: int, limit: int) -> int:
    """Size in bytes of an array of this shape. Raises FileError above ``limit``.

    >>> check_size("a.npy", (480, 640, 3), 1, limit=10**6)
    921600
    """
    size = math.prod(shape) * itemsize
    if min(shape, default=1) < 0:
        raise FileError(f"{path} says its shape is {tuple(shape)}; expected no negative numbers.")
    if size > limit:
        raise FileError(
            f"{path} of shape {tuple(shape)} would take {in_words(size)} of memory; expected at most "
            f"{in_words(limit)}. If you trust the file, raise the limit (limit=, or --limit)."
        )
    return size


def in_words(size: int) -> str:
    """Number of bytes as text with a unit.

    >>> in_words(921600), in_words(5 << 30)
    ('922 kB', '5.37 GB')
    """
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}" if size < 1000 * scale else f"{size // scale} {unit}"
    return f"{size} bytes"
