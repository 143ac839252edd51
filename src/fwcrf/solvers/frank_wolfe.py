"""Generalized Frank-Wolfe: Algorithm 1 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from fwcrf.energy import Energy, Objective
from fwcrf.regularizers import Regularizer
from fwcrf.solvers.solver import Iterate, advance
from fwcrf.stepsizes import Constant, Step, Stepsize
from fwcrf.torch_ops.printed import in_one_line

Split = Callable[[Energy, Regularizer], tuple[Objective, Regularizer]]


def regularized(E: Energy, r: Regularizer) -> tuple[Objective, Regularizer]:
    """f = E and g = r: the energy is linearised, the regularizer is not."""
    return E, r


@dataclass(frozen=True)
class FrankWolfe:
    """x <- x + a (p - x) with p = argmin_p <grad f(x), p> + g(p).

    ``split`` maps the energy and the regularizer to f and g, (E, r) -> (f, g); ``fwcrf.solvers.splits`` has
    the splits of the concave-convex procedure.
    """

    regularizer: Regularizer
    stepsize: Stepsize = field(default_factory=Constant)
    split: Split = regularized

    __repr__ = in_one_line

    def init(self, f: Energy, x0: Tensor) -> Iterate:
        return Iterate(x0, *self.split(f, self.regularizer))

    def step(self, f: Energy, state: Iterate, k: int) -> Iterate:
        grad = state.gradient()
        p = state.g.argmin(grad)
        return advance(Step(k, state.f, state.g, state.x, grad, p), self.stepsize)
