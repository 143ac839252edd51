"""Steps of a solver that a native engine can take, and the labels that they can lead to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fwcrf import columns
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


def first_dual(x: Tensor, moves: Sequence[Move]) -> Tensor | None:
    """w at the start, for moves that have it."""
    if any(m.dual == "logits" for m in moves):
        return torch.log(x, out=empty(x.shape, x.dtype)).clamp_(min=math.log(torch.finfo(x.dtype).tiny))
    return empty(x.shape, x.dtype).zero_() if any(m.has_dual for m in moves) else None


# Labels are left out where fewer than this part of them remain, of arrays large enough to pay for the search.
FEW = 0.6
LARGE = 1 << 18
# An entropic step that cannot give a label more than this is taken to give it nothing.
NOTHING = 1e-6


def may_prune(x: Tensor, weights: Sequence[Tensor], moves: Sequence[Move], *, exactly: bool) -> bool:
    # A label that a projection cannot reach has no derivative either; an entropic one has.
    return (
        len(moves) > 2
        and x.numel() >= LARGE
        and x.shape[-1] > 2
        and moves[0].step == 1
        and all(m.keep == 0 and m.scale < 0 and not m.has_dual for m in moves)
        and not (exactly and any(m.oracle == "softmax" for m in moves))
        and all(w.dim() == 0 and float(w.detach()) >= 0 for w in weights)
    )


def possible(x: Tensor, unary: Tensor, moves: Sequence[Move]) -> Tensor:
    """The labels that moves from x can lead to.

    With Potts penalties and kernels that are not negative, neighbours speak only for labels that they have:
    if no pixel has label s, the others' lead over s can only grow. So the oracle gives s no more than by the
    unary alone: nothing where another label leads by 1/|scale| (projection) or at all (vertex), and at most
    exp(-|scale| lead) for softmax.
    """
    gap, most = columns.spans(x, unary)
    reach = {"project": 1.0, "vertex": 0.0, "softmax": -math.log(NOTHING)}
    near = max(reach[m.oracle] / -m.scale for m in moves)
    tiny = NOTHING if any(m.oracle == "softmax" for m in moves) else 0.0
    return ((gap <= near) | (most > tiny)).nonzero().squeeze(-1)
