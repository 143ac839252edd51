"""Generalized Frank-Wolfe: Algorithm 1 of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from fwcrf.energy import Energy
from fwcrf.regularizers import Regularizer
from fwcrf.stepsizes import Constant, Stepsize


class Iterate(NamedTuple):
    """The state of a solver without memory."""

    x: Tensor


@dataclass(frozen=True)
class FrankWolfe:
    """x <- x + a (p - x) with p = argmin_p <grad f(x), p> + g(p)."""

    g: Regularizer
    stepsize: Stepsize = field(default_factory=Constant)

    def init(self, f: Energy, x0: Tensor) -> Iterate:
        return Iterate(x0)

    def step(self, f: Energy, state: Iterate, k: int) -> Iterate:
        x = state.x
        p = self.g.argmin(f.grad(x))
        a = self.stepsize(k)
        # A full step lands on p itself, to the last bit.
        return Iterate(p if isinstance(a, float) and a == 1.0 else x + a * (p - x))


def minimize(
    f: Energy,
    solver: FrankWolfe,
    x0: Tensor,
    *,
    num_steps: int,
    callback: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """The iterate after ``num_steps`` steps; ``callback(k, x)`` sees each one, the start as k = 0."""
    if num_steps < 0:
        raise ValueError(f"num_steps={num_steps}; expected 0 (which returns the start) or more.")
    state = solver.init(f, x0)
    if callback is not None:
        callback(0, state.x)
    for k in range(num_steps):
        state = solver.step(f, state, k)
        if callback is not None:
            callback(k + 1, state.x)
    return state.x
