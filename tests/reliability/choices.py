"""Where a fuzz target's decisions come from: bytes of a fuzzer, or draws of hypothesis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from hypothesis import strategies as st

T = TypeVar("T")


class Choices(Protocol):
    """Decides what a case is."""

    def integer(self, low: int, high: int) -> int: ...


class Bytes:
    """Decisions read from bytes, as libFuzzer's consumer does; zeros after their end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def integer(self, low: int, high: int) -> int:
        size = max(1, ((high - low).bit_length() + 7) // 8)
        taken = self.data[self.place : self.place + size]
        self.place += size
        return low + int.from_bytes(taken, "little") % (high - low + 1)

    def rest(self) -> bytes:
        return self.data[self.place :]


class Drawn:
    """Decisions drawn by hypothesis, which makes a failing case smaller."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))


def pick(choices: Choices, options: Sequence[T]) -> T:
    return options[choices.integer(0, len(options) - 1)]


def flag(choices: Choices) -> bool:
    return bool(choices.integer(0, 1))


# Finite, and as unkind as finite numbers can be.
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 255.0, 1e-3, 1e3, -1e4, 1e6, 1e-7, 1e-30, -1e-40, 1e10, -1e20, 1e30)
NOT_FINITE = (float("nan"), float("inf"), -float("inf"))


def number(choices: Choices) -> float:
    """A finite number of any size."""
    if flag(choices):
        return pick(choices, SPECIAL)
    return choices.integer(-(10**6), 10**6) / 10.0 ** choices.integer(0, 8)


def positive(choices: Choices, low: float = 1e-3, high: float = 1e3) -> float:
    return low * (high / low) ** (choices.integer(0, 1000) / 1000)


def array(
    choices: Choices, shape: Sequence[int], dtype: Any = np.float64, *, largest: float = 1e30
) -> np.ndarray:
    """An array of finite numbers, of one of several characters."""
    random = np.random.default_rng(choices.integer(0, 2**32 - 1))
    kind = choices.integer(0, 5)
    shape = tuple(shape)
    if kind == 0:
        values = random.normal(size=shape)
    elif kind == 1:
        values = random.uniform(0, 255, shape)
    elif kind == 2:
        values = np.full(shape, number(choices))
    elif kind == 3:  # few values, many of them equal
        values = random.integers(-2, 3, shape).astype(float)
    elif kind == 4:  # any scale
        values = random.normal(size=shape) * 10.0 ** random.integers(-30, 31, shape)
    else:
        values = np.array(SPECIAL)[random.integers(0, len(SPECIAL), shape)]
    values = np.clip(values, -largest, largest)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return np.clip(values, max(info.min, -(2**62)), min(info.max, 2**62)).astype(dtype)
    if np.dtype(dtype) == bool:
        return values > 0
    bound = float(np.finfo(dtype).max)
    return np.clip(values, -bound, bound).astype(dtype)


def strided(choices: Choices, values: np.ndarray) -> np.ndarray:
    """The same numbers, laid out otherwise in memory."""
    kind = choices.integer(0, 4)
    if kind == 1:
        return np.asfortranarray(values)
    if kind == 2 and values.ndim:  # every other row of a larger array
        wide = np.zeros((2 * values.shape[0], *values.shape[1:]), values.dtype)
        wide[::2] = values
        return wide[::2]
    if kind == 3 and values.ndim:  # backwards in memory
        return np.ascontiguousarray(values[..., ::-1])[..., ::-1]
    if kind == 4:
        frozen = values.copy()
        frozen.flags.writeable = False
        return frozen
    return values
