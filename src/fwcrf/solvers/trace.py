"""A record of every iterate of a run. Measuring is neither timed nor counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf.energy import Energy
from fwcrf.pairwise import Pairwise, SelfEdges
from fwcrf.regularizers import Simplex
from fwcrf.stepsizes import Step
from fwcrf.torch_ops.printed import in_one_line


class Record(NamedTuple):
    """One iterate; all but k, seconds and applications are per image, ``(*batch,)``."""

    k: int  # steps taken to get here
    value: Tensor  # f + g, which the solver minimises
    energy: Tensor  # E of the iterate
    rounded: Tensor  # E of its labels
    gap: Tensor  # S(x), 0 at stationary points
    distance: Tensor  # |p - x|
    step: float | Tensor | None  # the step size that led here
    seconds: float  # since the start
    applications: int  # of P, since the start
    engine: str = ""  # the path that ran, and why if it was the generic one

    __repr__ = in_one_line


@dataclass(eq=False)
class Counted(Pairwise):
    """P, counting how often it is applied."""

    operator: Pairwise
    applications: int = 0

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        self.applications += 1
        return self.operator(x)

    def label_products(self, x: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None] | None:
        self.applications += 1
        return self.operator.label_products(x)

    def to_dense(self) -> Tensor:
        return self.operator.to_dense()

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        return self.operator.absolute_row_sums(num_labels)

    def self_edges(self) -> list[SelfEdges] | None:
        return self.operator.self_edges()


def look(f: Energy, state: Any) -> Step:
    """The step that Frank-Wolfe would take from a state: the gap is S(x)."""
    objective, g = getattr(state, "f", f), getattr(state, "g", Simplex())
    grad = getattr(state, "grad", None)
    grad = objective.grad(state.x) if grad is None else grad
    return Step(0, objective, g, state.x, grad, g.argmin(grad))


def value(step: Step) -> Tensor:
    """f + g at the start of a step."""
    return step.f.value_from_grad(step.x, step.grad) + step.g.value(step.x)


def stationary(f: Energy, state: Any, tol: float) -> tuple[Any, bool]:
    """The state with its gradient, and True if S(x) <= tol max(1, |f + g|) for every image."""
    step = look(f, state)
    if "grad" in state._fields:
        state = state._replace(grad=step.grad)  # the next step needs the gradient again
    with torch.no_grad():
        return state, is_small(step.gap, value(step), tol)


def is_small(gap: Tensor, total: Tensor, tol: float) -> bool:
    """True if the gap is at most tol max(1, |total|) for every image."""
    return bool((gap <= tol * total.abs().clamp(min=1.0)).all())


@dataclass(eq=False)
class Tracer:
    """Runs a solver's calls with a clock and a counter, and keeps the records."""

    energy: Energy
    rounding: Callable[[Energy, Tensor], Tensor]
    engine: str
    records: list[Record] = field(default_factory=list)
    seconds: float = 0.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        self.pairwise: Counted = Counted(self.energy.pairwise)
        self.counted: Energy = replace(self.energy, pairwise=self.pairwise)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        result = function(*args)
        self.seconds += time.perf_counter() - start
        return result

    def stationary(self, tol: float) -> bool:
        """True if f + g is stationary for every image in the last record."""
        return is_small(self.records[-1].gap, self.records[-1].value, tol)

    @torch.no_grad()
    def record(self, k: int, state: Any) -> None:
        applications = self.pairwise.applications
        step = look(self.counted, state)
        self.records.append(
            Record(
                k,
                value(step),
                self.energy.value(state.x),
                self.energy.of_labels(self.rounding(self.energy, state.x)),
                step.gap,
                step.squared_distance.sqrt(),
                getattr(state, "step", None),
                self.seconds,
                applications,
                self.engine,
            )
        )
        self.pairwise.applications = applications
