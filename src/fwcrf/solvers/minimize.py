"""The loop that all solvers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fwcrf import rounding as roundings
from fwcrf.energy import Energy
from fwcrf.finite import has_values
from fwcrf.solvers.solution import Solution
from fwcrf.solvers.solver import Solver, at_once
from fwcrf.solvers.trace import Tracer, look, value


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
) -> Solution:
    """Take ``num_steps`` steps of a solver, given by name or by ``solvers.get``, from ``x0``.

    ``x0`` is feasible, ``(*batch, n, L)``: rows on the simplex and 0 where a label is forbidden;
    ``softmax(-unary)`` unless given. With ``tol`` the run ends as soon as S(x) <= tol max(1, |f + g|) for
    every image, and ``Solution.converged`` says whether it did: f + g is then stationary to that accuracy.
    ``callback(k, x)`` sees each iterate, the start as k = 0. With ``trace`` the solution has a record of
    each: measuring applies P two or three times more per step, and is neither counted nor timed.

    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> E = Energy(dense([Exact(torch.zeros(2, 1))], num_labels=2), torch.tensor([[0.0, 2.0], [0.5, 0.0]]))
    >>> minimize(E, "l2fw", num_steps=3).labels
    tensor([0, 0])
    """
    if isinstance(solver, str):
        from fwcrf.solvers.named import get  # which is made of solvers, some of which minimize

        solver = get(solver)
    if isinstance(num_steps, bool) or int(num_steps) != num_steps or num_steps < 0:
        raise ValueError(f"num_steps={num_steps!r}; expected 0 (which returns the start) or more.")
    if tol is not None and not tol >= 0:
        raise ValueError(f"tol={tol!r}; expected 0 or more, or None to take all the steps.")
    round_ = roundings.get(rounding)
    if x0 is not None:
        x0 = _feasible(x0, f)

    if (
        not trace
        and tol is None
        and callback is None
        and (x := at_once(f, solver, x0, num_steps)) is not None
    ):
        return Solution(x, f, round_)
    if x0 is None:
        x0 = f._start()
    tracer = Tracer(f, round_) if trace else None
    seen, run = (f, _call) if tracer is None else (tracer.counted, tracer.run)
    state = run(solver.init, seen, x0)
    converged = False
    for k in range(num_steps + 1):
        if k > 0:
            state = run(solver.step, seen, state, k - 1)
        if callback is not None:
            callback(k, state.x)
        if tracer is not None:
            tracer.record(k, state)
        if tol is not None:
            state, converged = _stationary(f if tracer is None else tracer, state, tol)
            if converged:
                break
    return Solution(state.x, f, round_, None if tracer is None else tracer.records, converged)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def _stationary(f: Energy | Tracer, state: Any, tol: float) -> tuple[Any, bool]:
    """Whether S(x) is small for every image; the gradient it took stays in the state for the next step."""
    if isinstance(f, Tracer):
        last = f.records[-1]
        gap, total = last.gap, last.value
    else:
        step = look(f, state)
        if "grad" in state._fields:
            state = state._replace(grad=step.grad)
        with torch.no_grad():
            gap, total = step.gap, value(step)
    return state, bool((gap <= tol * total.abs().clamp(min=1.0)).all())


def _feasible(x0: Tensor, f: Energy) -> Tensor:
    u = f.unary
    if not isinstance(x0, Tensor) or x0.dtype != u.dtype:
        kind = x0.dtype if isinstance(x0, Tensor) else type(x0).__name__
        raise TypeError(f"x0 is {kind}; expected a tensor of the unary's dtype, {u.dtype}.")
    if x0.shape != u.shape:
        raise ValueError(f"x0 has shape {tuple(x0.shape)}; expected that of the unary, {tuple(u.shape)}.")
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
