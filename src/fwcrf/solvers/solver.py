"""The interface of a solver: frozen settings, an explicit state, one step."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fwcrf.energy import Objective
from fwcrf.regularizers import Regularizer
from fwcrf.stepsizes import Step, Stepsize
from fwcrf.torch_ops.printed import in_one_line


class Solver(Protocol):
    """Frozen settings; everything that changes is in the state, a NamedTuple with a field ``x``.

    A state may also have fields ``f`` and ``g``, whose sum the solver minimises (otherwise E over the
    simplices), ``grad``, f's gradient at x or None, and ``step``, the step size that led to x.
    """

    def init(self, f: Any, x0: Tensor) -> Any: ...

    def step(self, f: Any, state: Any, k: int) -> Any: ...


class Iterate(NamedTuple):
    """The state of a solver without memory of earlier steps: x, and the f and g to minimise."""

    x: Tensor
    f: Objective
    g: Regularizer
    grad: Tensor | None = None  # of f at x, if it is known already
    step: float | Tensor | None = None

    __repr__ = in_one_line

    def gradient(self) -> Tensor:
        return self.f.grad(self.x) if self.grad is None else self.grad


def advance(step: Step, stepsize: Stepsize) -> Iterate:
    """The iterate x + a (p - x), with its gradient if the step-size rule has computed it."""
    a = stepsize(step)
    return Iterate(step.towards(a), step.f, step.g, step.grad_after(a), a)
