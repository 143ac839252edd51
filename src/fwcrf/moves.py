"""Steps of a solver that a native engine can take, and the labels that they can lead to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fwcrf import columns

# In the order of the native core.
MAPS = ["none", "softmax", "project", "vertex", "softmax derivative", "project derivative"]
ANSWER = [0.0, 1.0, 0.0, 1.0]  # P x + u itself


@dataclass(frozen=True)
class Move:
    """x <- x + step (p - x) with p = oracle(scale (P x + u) + keep x), row by row."""

    oracle: Literal["softmax", "project", "vertex"]  # vertex: that of the largest entry
    scale: float
    keep: float = 0.0
    step: float = 1.0

    def numbers(self) -> list[float]:
        return [MAPS.index(self.oracle), self.scale, self.keep, self.step]


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
        and all(m.keep == 0 and m.scale < 0 for m in moves)
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
