"""Numbers that a user passes as arguments: checked, and converted to Python's own or to a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.native import as_tensor

# Beyond this, a count is a mistake, and indices of native code overflow.
MOST = 2**31 - 1


def whole(value: Any, name: str, least: int, expected: str = "") -> int:
    """A whole number of at least ``least``; 10.0 is one, and True is not."""
    expected = expected or f"a whole number of at least {least}"
    number = _number(value, name, expected)
    if not (least <= number <= MOST and number == int(number)):
        limit = f", and at most {MOST}" if number > MOST else ""
        raise ValueError(_message(value, name, expected + limit))
    return int(number)


def real(value: Any, name: str, expected: str, holds: Callable[[float], bool]) -> float:
    """A number for which ``holds`` is True."""
    number = _number(value, name, expected)
    if not holds(number):
        raise ValueError(_message(value, name, expected))
    return float(number)


def reals(value: Any, name: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers of any shape as a floating-point tensor, of ``dtype`` if they are no array of floats."""
    try:
        numbers = as_tensor(value if isinstance(value, Tensor) else np.asarray(value))
        plain = numbers.dtype != torch.bool and not numbers.is_complex()
    except (TypeError, ValueError, RuntimeError, OverflowError):
        plain = False
    if not plain:
        raise TypeError(_message(value, name, "real numbers"))
    if numbers.is_floating_point() and isinstance(value, Tensor | np.ndarray):
        return numbers
    return as_tensor(value, dtype)


def function(value: Any, name: str, arguments: str) -> None:
    """Refuse a value that is neither None nor a function."""
    if value is not None and not callable(value):
        raise TypeError(_message(value, name, f"a function, called with {arguments}, or None"))


def shown(value: Any) -> str:
    """The value as in code, in one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _number(value: Any, name: str, expected: str) -> float | int:
    """The one number that a value is."""
    if isinstance(value, Tensor | np.ndarray | np.generic) and np.ndim(value) == 0:
        value = value.item()
    if isinstance(value, bool):
        raise ValueError(_message(value, name, expected))
    if not isinstance(value, int | float):
        raise TypeError(_message(value, name, expected))
    return value


def _message(value: Any, name: str, expected: str) -> str:
    return f"{name}={shown(value)}; expected {expected}."
