"""The loop that all solvers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fwcrf import rounding as roundings
from fwcrf.energy import Energy
from fwcrf.inputs.numbers import MOST, function, real, whole
from fwcrf.solvers.frank_wolfe import FrankWolfe
from fwcrf.solvers.mirror_descent import ProjectedGradient
from fwcrf.solvers.named import as_solver
from fwcrf.solvers.plan import Plan, plan
from fwcrf.solvers.solution import Solution
from fwcrf.solvers.solver import Solver
from fwcrf.solvers.trace import Tracer, stationary
from fwcrf.torch_ops.native import has_values, with_memory_errors


@with_memory_errors
def minimize(
    f: Energy,
    solver: str | Solver,
    x0: Tensor | None = None,
    *,
    num_steps: int,
    rounding: str | roundings.Rounding = "nearest",
    trace: bool = False,
    tol: float | None = None,
    callback: Callable[[int, Tensor], None] | None = None,
    least_change: float | None = None,
) -> Solution:
    """The solution after ``num_steps`` steps of a solver, given by name or by ``solvers.get``, from ``x0``.

    ``x0`` is feasible, ``(*batch, n, L)``: rows on the simplex and 0 where a label is forbidden;
    ``softmax(-unary)`` unless given. With ``tol`` the run ends as soon as S(x) <= tol max(1, |f + g|) for
    every image, and ``Solution.converged`` is True then: f + g is stationary to that accuracy.
    A pixel of which a full step would change no probability by more than ``least_change`` may stay as it is,
    and the run ends as soon as all pixels stay; by default that is 1e-5 where a step is a softmax in float32,
    else rounding, and a run that is native. Frank-Wolfe and projected gradients follow this rule; other
    solvers, and runs whose gradients are recorded, take all their steps. ``Solution.engine`` counts the steps
    that had nothing to change.
    ``callback(k, x)`` is called with each iterate, the start as k = 0. With ``trace`` the solution has a
    record of each: measuring applies P two or three times more per step, and is neither counted nor timed.

    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> E = Energy(dense([Exact(torch.zeros(2, 1))], num_labels=2), torch.tensor([[0.0, 2.0], [0.5, 0.0]]))
    >>> minimize(E, "l2fw", num_steps=3).labels
    tensor([0, 0])
    """
    if isinstance(solver, str | type) or not hasattr(solver, "step"):
        solver = as_solver(solver)
    if type(num_steps) is not int or not 0 <= num_steps <= MOST:
        num_steps = whole(num_steps, "num_steps", 0, "0 (which returns the start) or more")
    if tol is not None:
        tol = real(tol, "tol", "0 or more, or None to take all the steps", lambda t: 0 <= t < float("inf"))
    if least_change is not None:
        least_change = real(
            least_change, "least_change", "0 to 1, or None for the default", lambda t: 0 <= t <= 1
        )
    if callback is not None:
        function(callback, "callback", "k and x")
    round_ = roundings.get(rounding)
    if x0 is not None:
        x0 = _feasible(x0, f)

    watched = trace or tol is not None or callback is not None
    found = plan(f, solver, x0, num_steps, watched=watched, least_change=least_change)
    if isinstance(found, Plan):
        x = found.run(x0, f.unary)
        return Solution(x, f, round_, engine=str(found))
    x0 = f.start() if x0 is None else x0
    tracer = Tracer(f, round_, str(found)) if trace else None
    seen, run = (f, _call) if tracer is None else (tracer.counted, tracer.run)
    state = run(solver.init, seen, x0)
    converged = False
    settles = least_change is not None and type(solver) in (FrankWolfe, ProjectedGradient)
    for k in range(num_steps + 1):
        before = state.x
        if k > 0:
            state = run(solver.step, seen, state, k - 1)
        if callback is not None:
            callback(k, state.x)
        if tracer is not None:
            tracer.record(k, state)
        if tol is not None:
            state, converged = (
                stationary(f, state, tol) if tracer is None else (state, tracer.stationary(tol))
            )
            if converged:
                break
        if settles and k > 0 and _still(before, state, least_change):  # type: ignore[arg-type]
            break
    records = None if tracer is None else tracer.records
    return Solution(state.x, f, round_, records, converged, engine=str(found))


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _still(before: Tensor, state: Any, least_change: float) -> bool:
    """True if a full step would have changed no probability by more."""
    moved = (state.x - before).detach().abs().amax((-2, -1))
    size = 1.0 if state.step is None else state.step
    return has_values(moved) and bool((moved <= least_change * size).all())


def _feasible(x0: Tensor, f: Energy) -> Tensor:
    u = f.unary
    if not isinstance(x0, Tensor) or x0.dtype != u.dtype:
        kind = x0.dtype if isinstance(x0, Tensor) else type(x0).__name__
        raise TypeError(f"x0 is {kind}; expected a tensor of the unary's dtype, {u.dtype}.")
    if x0.shape != u.shape:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}; expected the unary's, {tuple(u.shape)}.")
    if has_values(x0):
        x = x0.detach()
        if not bool(((x >= 0).all(-1) & ((x.sum(-1) - 1).abs() <= 1e-3)).all()):
            raise ValueError(
                "x0 has rows that are not probabilities (NaN, negative, or not summing to 1); "
                "expected a point of the simplices: torch.softmax(logits, -1) makes one."
            )
        if bool(((u == torch.inf) & (x > 0)).any()):
            raise ValueError("x0 gives forbidden labels (unary +inf) a probability; expected 0 for them.")
    return x0
