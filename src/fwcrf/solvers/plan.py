"""The one door to the engine: a plan for a solver on an energy, or the reason for the generic path.

A ``Plan`` runs all steps natively. A ``Refusal`` says, in a sentence, why the solver's own
``step`` is called instead. Solvers and regularizers know nothing of the engine: ``as_updates`` recognises
them by type.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from fwcrf.compatibility import Potts
from fwcrf.energy import Energy
from fwcrf.engine.limits import Refusal, Task, refuse_methods, refuse_task
from fwcrf.engine.model import NUMBERS, Model, Settings
from fwcrf.engine.update import Dual, Map, Scheduled, Update
from fwcrf.regularizers import Entropy, Regularizer, Simplex, SquaredL2
from fwcrf.solvers.admm import ADMM
from fwcrf.solvers.frank_wolfe import FrankWolfe, regularized
from fwcrf.solvers.mirror_descent import EntropicDescent, ProjectedGradient, ProximalGradient
from fwcrf.solvers.solver import Solver
from fwcrf.stepsizes import Adaptive, Constant, Schedule, Stepsize
from fwcrf.stepsizes import Sequence as StepSequence
from fwcrf.torch_ops.native import transformed
from fwcrf.torch_ops.printed import in_one_line

__all__ = ["Plan", "Refusal", "arrays_per_label", "as_updates", "plan"]

# Arrays of the size of the scores that are alive at the peak of a run, measured: native; generic; a step rule
# that looks at x, with eigenvalues for Adaptive; an oracle that is a minimisation; descent to labels.
NATIVE_ARRAYS, GENERIC_ARRAYS, _SEARCH, _ADAPTIVE, _NESTED, _DESCENT = 7, 20, 30, 75, 28, 28
# Equal updates are one object; of more updates, step sizes are an array.
_FEW = 64


@dataclass(frozen=True)
class Plan:
    """All steps of a solver in one native call."""

    model: Model
    updates: Sequence[Update]
    settings: Settings = NUMBERS
    least_change: float | None = None  # see ``minimize``
    reads: list[int] = field(default_factory=list)  # pixels that each step of the last run read

    __repr__ = in_one_line

    def run(self, x0: Tensor | None, unary: Tensor) -> Tensor:
        """The point after the last step, from ``x0`` or from softmax(-unary) if it is None."""
        return self.model.run(x0, unary, self.updates, self.settings, self.reads, self.least_change)

    def __str__(self) -> str:
        kernels = ", ".join(self.model.methods)
        return f"native engine: {len(self.updates)} steps in one call ({kernels}){self._lazy()}"

    def _lazy(self) -> str:
        """The steps of the last run that did not read every pixel."""
        pixels = max(self.reads, default=0)
        some = [count for count in self.reads if 0 < count < pixels]
        still, text = self.reads.count(0), ""
        if some:
            text = f", {len(some)} of them lazy, of {sum(some) / len(some) / pixels:.1%} of the pixels"
        return text + (f"; nothing changed before the last {still}" if still else "")


def plan(
    f: Energy,
    solver: Solver,
    x0: Tensor | None,
    num_steps: int,
    *,
    watched: bool = False,
    least_change: float | None = None,
) -> Plan | Refusal:
    """The plan for ``num_steps`` steps from ``x0``, or from softmax(-unary) if it is None; else a refusal.

    ``watched`` if a trace, a tolerance or a callback reads every iterate. ``least_change`` is as in
    ``minimize``.
    """
    updates = as_updates(solver, num_steps)
    known = not isinstance(updates, Refusal) and type(solver) is FrankWolfe
    settings = _settings(solver, num_steps) if known else NUMBERS  # type: ignore[arg-type]
    f.pairwise.check(f.unary)
    if watched:
        return Refusal("trace=, tol= or callback= reads every iterate")
    if isinstance(updates, Refusal):
        return updates
    model = f.pairwise.engine()
    if isinstance(model, Refusal):
        return model
    refusal = model.refuse(f.unary if x0 is None else x0, f.unary, updates, settings)
    return Plan(model, updates, settings, least_change) if refusal is None else refusal


def arrays_per_label(
    solver: Solver,
    num_steps: int,
    methods: Sequence[str],
    compatibility: object,
    labels: int,
    dtype: torch.dtype,
    device: torch.device,
    rounding: object = "nearest",
) -> int:
    """The number of arrays of the size of the scores that a run without gradients takes at its peak."""
    least = 0 if rounding == "nearest" else _DESCENT
    updates = as_updates(solver, num_steps)
    if isinstance(updates, Refusal) or device.type != "cpu" or any(u.lean != 0 or u.dual for u in updates):
        return max(least, _generic_arrays(solver))
    potts = isinstance(compatibility, int | float | Potts)
    refusal = refuse_methods(methods) or refuse_task(Task(labels, dtype, potts, updates))
    return max(least, NATIVE_ARRAYS if refusal is None else _generic_arrays(solver))


def _generic_arrays(solver: Solver) -> int:
    rule = getattr(solver, "stepsize", None)
    if isinstance(rule, Adaptive):
        return _ADAPTIVE
    if isinstance(getattr(solver, "split", None), partial):
        return _NESTED
    return GENERIC_ARRAYS if rule is None or isinstance(rule, Schedule) else _SEARCH


def as_updates(solver: Solver, num_steps: int) -> Sequence[Update] | Refusal:
    """The steps of a solver as updates that are known before the run; else a refusal."""
    if num_steps < 1:
        return Refusal("there are no steps to take")
    kind = type(solver)  # not isinstance: a subclass may take other steps
    if kind is ADMM:
        return _admm(solver, num_steps)  # type: ignore[arg-type]
    if kind not in (FrankWolfe, ProjectedGradient, ProximalGradient, EntropicDescent):
        return Refusal(f"the steps of {kind.__name__} are not updates of single rows")
    learnable = kind is FrankWolfe and type(solver.regularizer) is not Simplex  # type: ignore[attr-defined]
    steps = _steps(solver.stepsize, num_steps, tensors=learnable)  # type: ignore[attr-defined]
    if isinstance(steps, Refusal):
        return steps
    if kind is ProjectedGradient:
        return _each(lambda a: Update(Map.PROJECT, -1.0, keep=1.0, step=a), steps)
    if kind is FrankWolfe:
        oracle = _oracle(solver)  # type: ignore[arg-type]
        return oracle if isinstance(oracle, Refusal) else _each(lambda a: oracle._replace(step=a), steps)
    if not all(steps):
        return Refusal("a step of 0 times an infinite energy is not a number")
    if kind is ProximalGradient:
        return _each(lambda a: Update(Map.PROJECT, -a, keep=1.0), steps)
    if solver.epsilon:  # type: ignore[attr-defined]
        return Refusal("the engine carries the logarithms of x, to which epsilon cannot be added")
    return _each(lambda a: Update(Map.SOFTMAX, -a, lean=1.0, dual=Dual.LOGITS), steps)


def _each(make: Callable[[float], Update], steps: Sequence[float]) -> Sequence[Update]:
    """An update per step size, in a few bytes per step: a run may have a million steps."""
    if isinstance(steps, array):
        return Scheduled(make, steps)
    made = {a: make(a) for a in dict.fromkeys(steps)}  # mostly one
    return [made[a] for a in steps]


def _oracle(solver: FrankWolfe) -> Update | Refusal:
    """A full step to the oracle of a regularizer."""
    r: Regularizer = solver.regularizer
    if solver.split is not regularized:
        return Refusal("the solver splits the energy")
    if type(r) is Simplex:
        return Update(Map.VERTEX, -1.0)
    if type(r) not in (Entropy, SquaredL2):
        return Refusal(f"the oracle of {type(r).__name__} is neither softmax, projection nor vertex")
    weight = r.weight  # type: ignore[attr-defined]
    if isinstance(weight, Tensor):
        if not _is_number(weight):
            return Refusal("the weight of the regularizer (lambda) differs between nodes, or is traced")
        weight = weight.item()
    return Update(Map.SOFTMAX if type(r) is Entropy else Map.PROJECT, -1 / weight)


def _settings(solver: FrankWolfe, num_steps: int) -> Settings:
    """The tensors among the weight of the regularizer and the step sizes."""
    weight, rule = getattr(solver.regularizer, "weight", None), solver.stepsize
    steps: list[float | Tensor] = []
    if type(rule) is StepSequence and isinstance(rule.steps, Tensor):
        steps = [rule.at(k) for k in range(num_steps)]
    return Settings(
        weight if isinstance(weight, Tensor) else None,
        torch.stack(steps) if steps else None,  # type: ignore[arg-type]
    )


def _is_number(value: Tensor) -> bool:
    """True for a tensor on the CPU with one number that can be read."""
    return value.dim() == 0 and value.is_cpu and not transformed(value)


def _steps(rule: Stepsize, num_steps: int, *, tensors: bool) -> Sequence[float] | Refusal:
    """The step sizes of a rule that depends on k only, an array if many differ; else a refusal.

    With ``tensors``, also of a tensor of step sizes.
    """
    if not isinstance(rule, Schedule):
        return Refusal(f"the step sizes of {type(rule).__name__} depend on x")
    constant = type(rule) is Constant
    # torch.compile traces lists, not arrays.
    steps = [] if constant or num_steps <= _FEW else array("d")
    for k in range(1 if constant else num_steps):
        if isinstance(a := rule.step if constant else rule.at(k), Tensor):  # type: ignore[attr-defined]
            if not tensors or type(rule) is not StepSequence or not isinstance(rule.steps, Tensor):
                return Refusal("the step sizes are learned, or differ between images")
            if not _is_number(a):
                return Refusal("the step sizes differ between images, or are traced")
            a = a.item()
        steps.append(a)
    return steps * num_steps if constant else steps


def _admm(solver: ADMM, num_steps: int) -> Sequence[Update] | Refusal:
    if isinstance(solver.rho, Tensor):
        return Refusal("rho is a tensor")
    if type(solver.mirror) is not SquaredL2 or solver.mirror.weight != 1:
        return Refusal(f"the mirror map of ADMM is {solver.mirror!r}, not half the squared norm")
    # With multipliers w = y / rho; P x counts half, so that in its scale the unary counts twice.
    scale = -0.5 / solver.rho
    x = Update(Map.PROJECT, scale, keep=1.0, unary=2.0, lean=-1.0)
    z = Update(Map.PROJECT, scale, keep=1.0, unary=0.0, lean=1.0, dual=Dual.MULTIPLIERS)
    return [z if k % 2 else x for k in range(num_steps)]
