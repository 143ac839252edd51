"""What pydensecrf takes as an argument, and what it raises for anything else.

It takes buffers of one element type in C order. So do we, with exceptions of the same type; the messages
begin as its own and go on to the remedy. Where it reads past the end of the memory, we raise ``ValueError``.
"""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import numpy as np

# What its messages call the types of C.
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.uint8): "unsigned char"}


def integer(value: Any, name: str, least: int) -> int:
    """A number cut to an integer, as C does it."""
    if not isinstance(value, Number) or isinstance(value, complex):
        raise TypeError(f"an integer is required for {name}, not {type(value).__name__}")
    number = int(value)  # type: ignore[call-overload]
    if number < least:
        raise ValueError(f"{name}={value!r}; expected at least {least}.")
    return number


def real(value: Any, name: str) -> float:
    """A finite number."""
    if isinstance(value, complex) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{name} must be real number, not {type(value).__name__}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name}={value!r}; expected a finite number.")
    return number


def bandwidths(value: Any, name: str, count: int) -> list[float]:
    """``count`` standard deviations from one number or from the first so many of a sequence."""
    alike = isinstance(value, Number)
    found = [real(value if alike else value[i], name) for i in range(count)]
    if not all(found):
        raise ValueError(f"{name}={value!r}; expected standard deviations other than 0.")
    return found


def float_array(value: Any, name: str, dimensions: int) -> np.ndarray:
    """An array of float32 in C order."""
    return array(value, name, np.float32, dimensions)


def array(value: Any, name: str, dtype: type, dimensions: int) -> np.ndarray:
    """An array of a type and a number of dimensions, in C order; not copied."""
    if value is None:
        raise TypeError(f"Argument '{name}' must not be None; expected a numpy array.")
    found = buffer(value, name)
    if found.ndim != dimensions:
        raise ValueError(
            f"Buffer has wrong number of dimensions (expected {dimensions}, got {found.ndim}): "
            f"{name} has shape {found.shape}."
        )
    if found.dtype == np.bool_ and dtype is np.uint8:
        found = found.view(np.uint8)
    if found.dtype != dtype:
        expected, got = np.dtype(dtype), found.dtype
        raise ValueError(
            f"Buffer dtype mismatch, expected '{_NAMES[expected]}' but got '{_NAMES.get(got, got)}': "
            f"{name}.astype(np.{expected}) converts it."
        )
    if not found.flags.c_contiguous:
        raise ValueError(f"ndarray is not C-contiguous: np.ascontiguousarray({name}) makes it so.")
    return found


def buffer(value: Any, name: str) -> np.ndarray:
    """The array behind an object that has one: no list, no number."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise TypeError(
            f"a bytes-like object is required, not '{type(value).__name__}': {name} is to be a numpy array, "
            "which np.asarray makes of a list or a tensor."
        ) from None
