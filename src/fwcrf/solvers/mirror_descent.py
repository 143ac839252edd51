"""Descent along the gradient, back onto the simplices by a projection or a mirror map.

====  ========================================================  ==================
name  update                                                    step
====  ========================================================  ==================
pgd   x + a (p - x) with p = projection of x - grad E(x)        any rule
pgm   projection of x - a grad E(x)                             a schedule
emd   softmax(log(x + epsilon) - a grad E(x))                   a schedule
====  ========================================================  ==================

Unlike Frank-Wolfe, these methods add a distance from x to the linear problem, so that steps stay close to x.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.energy import Objective, descend
from fwcrf.regularizers import Simplex
from fwcrf.solvers.solver import Iterate, advance
from fwcrf.stepsizes import Constant, Schedule, Step, Stepsize
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import project_onto_simplex


@dataclass(frozen=True)
class ProjectedGradient:
    """x <- x + a (p - x) with p = projection of x - grad E(x); a line search works on this segment."""

    stepsize: Stepsize = field(default_factory=Constant)

    __repr__ = in_one_line

    def init(self, f: Objective, x0: Tensor) -> Iterate:
        return Iterate(x0, f, Simplex())

    def step(self, f: Objective, state: Iterate, k: int) -> Iterate:
        grad = state.gradient()
        p = project_onto_simplex(state.x - grad)
        return advance(Step(k, state.f, state.g, state.x, grad, p), self.stepsize)


@dataclass(frozen=True)
class ProximalGradient:
    """x <- projection of x - a grad E(x)."""

    stepsize: Schedule = field(default_factory=Constant)

    __repr__ = in_one_line

    def init(self, f: Objective, x0: Tensor) -> Iterate:
        return Iterate(x0, f, Simplex())

    def step(self, f: Objective, state: Iterate, k: int) -> Iterate:
        a = self.stepsize.at(k)
        return Iterate(project_onto_simplex(descend(state.x, a, state.gradient())), f, state.g, step=a)


class LogIterate(NamedTuple):
    """x and its logarithm, which does not underflow."""

    x: Tensor
    log_x: Tensor
    grad: Tensor | None = None
    step: float | Tensor | None = None

    __repr__ = in_one_line


@dataclass(frozen=True)
class EntropicDescent:
    """x <- softmax(log x - a grad E(x)), carried in logarithms so that no label is lost to underflow.

    The paper adds an ``epsilon`` of 1e-10 to x instead, so that a label at 0 can return.
    """

    stepsize: Schedule = field(default_factory=Constant)
    epsilon: float = 0.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 1:
            raise ValueError(
                f"epsilon={self.epsilon!r}; expected a small number such as 1e-10, or 0 for none."
            )

    def init(self, f: Objective, x0: Tensor) -> LogIterate:
        return LogIterate(x0, x0.clamp(min=torch.finfo(x0.dtype).tiny).log())

    def step(self, f: Objective, state: LogIterate, k: int) -> LogIterate:
        a = self.stepsize.at(k)
        grad = f.grad(state.x) if state.grad is None else state.grad
        log_x = (state.x + self.epsilon).log() if self.epsilon else state.log_x
        log_x = torch.log_softmax(descend(log_x, a, grad), -1)
        return LogIterate(log_x.exp(), log_x, step=a)
