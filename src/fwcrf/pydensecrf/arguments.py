"""Checks of arguments, with pydensecrf's exceptions.

pydensecrf takes buffers of one element type in C order. These functions raise exceptions of the same types;
the messages begin like pydensecrf's and add a remedy. If pydensecrf reads past its memory: ``ValueError``.
"""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import numpy as np

# Names of the C types in pydensecrf's messages.
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double", np.dtype(np.uint8): "unsigned char"}


def integer(value: Any, name: str, least: int) -> int:
    """A number, or an array without axes, truncated to an integer, as in C."""
    if not (isinstance(value, Number) or getattr(value, "ndim", None) == 0) or isinstance(value, complex):
        raise TypeError(f"an integer is required for {name}, not {type(value).__name__}")
    number = int(value)  # type: ignore[arg-type]
    if number < least:
        raise ValueError(f"{name}={value!r}; expected at least {least}.")
    return number


def real(value: Any, name: str, *, infinite: bool = False) -> float:
    """A float; finite unless ``infinite``."""
    if isinstance(value, complex) or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        raise TypeError(f"{name} must be real number, not {type(value).__name__}")
    number = float(value)
    if math.isnan(number) or (math.isinf(number) and not infinite):
        raise ValueError(f"{name}={value!r}; expected a {'number' if infinite else 'finite number'}.")
    return number


def bandwidths(value: Any, name: str, count: int) -> list[float]:
    """``count`` standard deviations: one number repeated, or the first entries of a sequence.

    An infinite one is a feature without influence.
    """
    alike = isinstance(value, Number)
    found = [real(value if alike else value[i], name, infinite=True) for i in range(count)]
    if not all(found):
        raise ValueError(f"{name}={value!r}; expected standard deviations other than 0.")
    return found


def float_array(value: Any, name: str, dimensions: int) -> np.ndarray:
    """``value`` as an array of float32 in C order; not copied."""
    return array(value, name, np.float32, dimensions)


def array(value: Any, name: str, dtype: type, dimensions: int) -> np.ndarray:
    """``value`` as an array in C order; not copied. Raises for another dtype or number of dimensions."""
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
        raise ValueError(f"ndarray is not C-contiguous: np.ascontiguousarray({name}) copies it to C order.")
    return found


def buffer(value: Any, name: str) -> np.ndarray:
    """The array of an object with a buffer or array interface. Raises for lists and numbers."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        raise TypeError(
            f"a bytes-like object is required, not '{type(value).__name__}': {name} must be a numpy array; "
            "np.asarray converts a list or a tensor."
        ) from None
