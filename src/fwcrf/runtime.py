"""Calls of the native core without torch: number of threads, memory for results, errors of memory."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from fwcrf import _core

_P = ParamSpec("_P")
_R = TypeVar("_R")
# The message of torch's CPU allocator.
_NO_MEMORY = re.compile(r"you tried to allocate (\d+) bytes")
# The messages of torch and numpy for a size in bytes that has more than 63 bits.
_TOO_LARGE = re.compile(r"size calculation overflowed|integer multiplication overflow|array is too big")

# The largest int64.
LARGEST = 2**63 - 1
# Below this many bytes, ordinary memory is as fast.
LARGE = 1 << 19

_forked = False


def _after_fork() -> None:
    """Use one thread: a child inherits an OpenMP pool without its threads, and would wait for ever."""
    global _forked
    _forked = True
    _core.set_threads(1)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)


def max_threads() -> int:
    """The number of threads: torch's if torch is loaded, else OpenMP's; 1 in a forked process."""
    count = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if count is not None:
        return count()
    return 1 if _forked else _core.max_threads()


def threads_for(work: int) -> int:
    """The number of threads for ``work`` multiplications: fewer for little work."""
    return _core.threads_for(work, max_threads())


def empty(shape: Sequence[int], dtype: Any) -> np.ndarray:
    """An uninitialised array, from memory that is kept for reuse: see ``csrc/runtime/blocks.hpp``."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < LARGE:
        return np.empty(shape, dtype)
    return _core.empty(size).view(dtype).reshape(shape)


def with_memory_errors(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, with a MemoryError that names the bytes if there is no memory for an array."""

    @functools.wraps(function)
    def door(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except (RuntimeError, MemoryError, ValueError) as error:
            name_missing_memory(error)
            raise

    return door


def name_missing_memory(error: Exception) -> None:
    """Raise a MemoryError that names the bytes if the error says that there is no memory for an array.

    torch raises a RuntimeError; numpy a MemoryError with rounded units, or a ValueError.
    """
    if size := _size_asked_for(error):
        raise MemoryError(f"no memory for an array of {size}") from error


def _size_asked_for(error: Exception) -> str | None:
    """The bytes for which torch or numpy had no memory, with their unit; None for every other error."""
    if found := _NO_MEMORY.search(str(error)):
        return f"{found[1]} bytes"
    if _TOO_LARGE.search(str(error)):
        return "2^63 bytes or more"
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)  # of numpy's
    if isinstance(error, MemoryError) and shape is not None and dtype is not None:
        return f"{math.prod(shape) * dtype.itemsize} bytes"
    return None
