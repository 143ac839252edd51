"""Steps of a solver that a native engine can take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fwcrf.memory import empty

# In the order of the native core.
MAPS = ["none", "softmax", "project", "vertex", "softmax derivative", "project derivative"]
DUALS = ["none", "logits", "multipliers"]


@dataclass(frozen=True)
class Move:
    """x <- x + step (p - x) with p = oracle(v) and v = scale (P x + unary u) + keep x + lean w, row by row.

    w is the dual variable of a solver that has one. Logits start as log x and become v, up to a constant
    per row; multipliers start as 0 and become w + x - p.
    """

    oracle: Literal["softmax", "project", "vertex"]  # vertex: that of the largest entry
    scale: float
    keep: float = 0.0
    step: float = 1.0
    unary: float = 1.0
    lean: float = 0.0
    dual: Literal["none", "logits", "multipliers"] = "none"

    def numbers(self) -> list[float]:
        return numbers(
            self.oracle, self.scale, self.keep, self.step, self.unary, self.lean, DUALS.index(self.dual)
        )

    @property
    def has_dual(self) -> bool:
        return self.lean != 0 or self.dual != "none"


def numbers(
    oracle: str,
    scale: float = 1.0,
    keep: float = 0.0,
    step: float = 1.0,
    unary: float = 1.0,
    lean: float = 0.0,
    dual: int = 0,
) -> list[float]:
    """A move as the native core takes it."""
    return [MAPS.index(oracle), scale, keep, step, unary, lean, dual]


ANSWER = numbers("none")  # P x + u itself


class Before(NamedTuple):
    """Where moves begin, if not at x: at a map of scale x, or with its derivative at ``other``."""

    oracle: str
    scale: float
    other: Tensor | None
    out: Tensor


def first_dual(x: Tensor, moves: Sequence[Move]) -> Tensor | None:
    """w at the start, for moves that have it."""
    if any(m.dual == "logits" for m in moves):
        return torch.log(x, out=empty(x.shape, x.dtype)).clamp_(min=math.log(torch.finfo(x.dtype).tiny))
    return empty(x.shape, x.dtype).zero_() if any(m.has_dual for m in moves) else None
