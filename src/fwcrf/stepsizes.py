"""How far to go from x to the oracle's answer p: a rule from the step counter to a number in [0, 1]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

Stepsize = Callable[[int], float | Tensor]


@dataclass(frozen=True)
class Constant:
    """The same step always; 1 is what mean field and CCCP take."""

    step: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.step <= 1:
            raise ValueError(f"step={self.step!r}; expected a number from 0 to 1.")

    def __call__(self, k: int) -> float:
        return self.step


@dataclass(frozen=True)
class Harmonic:
    """2 / (k + 2), starting at k = 0 with a full step."""

    def __call__(self, k: int) -> float:
        return 2 / (k + 2)
