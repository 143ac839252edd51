"""FISTA: the proximal gradient method with momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from fwcrf.energy import Objective, descend
from fwcrf.stepsizes import Constant, Schedule
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import project_onto_simplex


class State(NamedTuple):
    """x, the point y ahead of it, and the momentum's counter t."""

    x: Tensor
    y: Tensor
    t: float
    step: float | Tensor | None = None

    __repr__ = in_one_line


@dataclass(frozen=True)
class Fista:
    """x <- projection of y - a grad E(y), then y <- x + (t - 1)/t' (x - last x).

    The counter grows as t' = (1 + sqrt(1 + 4 t^2)) / 2. y may leave the simplices, but sums to 1, and a
    forbidden label is 0 in it as in x.
    """

    stepsize: Schedule = field(default_factory=Constant)

    __repr__ = in_one_line

    def init(self, f: Objective, x0: Tensor) -> State:
        return State(x0, x0, 1.0)

    def step(self, f: Objective, state: State, k: int) -> State:
        a = self.stepsize.at(k)
        x = project_onto_simplex(descend(state.y, a, f.grad(state.y)))
        t = 0.5 * (1 + math.sqrt(1 + 4 * state.t**2))
        return State(x, x + (state.t - 1) / t * (x - state.x), t, a)
