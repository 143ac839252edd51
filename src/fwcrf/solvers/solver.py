"""What a solver is: frozen settings, an explicit state, one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from fwcrf.energy import Energy, Objective
from fwcrf.moves import Move
from fwcrf.regularizers import Regularizer
from fwcrf.stepsizes import Step, Stepsize


class Solver(Protocol):
    """Frozen settings; everything that changes is in the state, a NamedTuple with a field ``x``.

    A state may also have fields ``f`` and ``g``, what the solver minimises (otherwise E over the
    simplices), ``grad``, f's gradient at x or None, and ``step``, the one that led to x.

    A solver whose steps are known beforehand may say so with ``moves(num_steps)``, the steps from the start
    as ``Move`` or None: an operator with an engine of its own then takes them all at once.
    """

    def init(self, f: Any, x0: Tensor) -> Any: ...

    def step(self, f: Any, state: Any, k: int) -> Any: ...


def at_once(f: Energy, solver: Solver, x0: Tensor | None, num_steps: int) -> Tensor | None:
    """x after so many steps, where f's operator can take them at once; None otherwise.

    From softmax(-unary) if there is no ``x0``.
    """
    known = getattr(solver, "moves", None)
    moves: Sequence[Move] | None = None if known is None else known(num_steps)
    return f.pairwise.moved(x0, f.unary, moves) if moves else None


class Iterate(NamedTuple):
    """The state of a solver that remembers nothing but where it is."""

    x: Tensor
    f: Objective
    g: Regularizer
    grad: Tensor | None = None  # of f at x, if it is known already
    step: float | Tensor | None = None

    def gradient(self) -> Tensor:
        return self.f.grad(self.x) if self.grad is None else self.grad


def advance(step: Step, stepsize: Stepsize) -> Iterate:
    """x + a (p - x), with the gradient there if the rule made it known."""
    a = stepsize(step)
    return Iterate(step.towards(a), step.f, step.g, step.grad_after(a), a)
