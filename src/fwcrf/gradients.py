"""Three ways to differentiate a run of a solver.

==========  ==============================  =============================  ======================
way         gradient of                     memory                         time of backward
==========  ==============================  =============================  ======================
Unrolled    the K steps                     K steps                        as long as forward
Checkpoint  the K steps                     a step and 2 sqrt(K) iterates  two more forwards
Implicit    the fixed point                 one step, a few iterates       a linear system
==========  ==============================  =============================  ======================

Each is called with an energy, a solver, a start (None for softmax(-unary)) and a number of steps. It returns
x, differentiable in every tensor of the energy and of the solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fwcrf.energy import Energy
from fwcrf.inputs.numbers import shown
from fwcrf.pairwise import inner
from fwcrf.regularizers import Simplex
from fwcrf.solvers import FrankWolfe, Solver
from fwcrf.solvers.plan import Plan, plan
from fwcrf.solvers.trace import look
from fwcrf.torch_ops.native import warn_caller


class Gradient(Protocol):
    """A run of a solver that can be differentiated."""

    def check(self, solver: Solver) -> None:
        """Refuse a solver that cannot be differentiated in this way."""
        ...

    def __call__(self, f: Energy, solver: Solver, x0: Tensor | None, num_steps: int) -> Tensor: ...


@dataclass(frozen=True)
class Unrolled:
    """Backpropagation through all steps: autograd stores the tensors of each step."""

    def check(self, solver: Solver) -> None:
        pass

    def __call__(self, f: Energy, solver: Solver, x0: Tensor | None, num_steps: int) -> Tensor:
        found = plan(f, solver, x0, num_steps)
        if isinstance(found, Plan):
            return found.run(x0, f.unary)
        state = solver.init(f, f.start() if x0 is None else x0)
        return _steps(f, solver, state, 0, num_steps).x


@dataclass(frozen=True)
class Checkpoint:
    """Backpropagation that computes each step again: the same gradients in less memory.

    The forward pass stores the first iterate of each of about sqrt(K) segments. The backward pass computes
    one segment at a time again, of which it stores the iterates, and then each step with all its tensors.
    """

    def check(self, solver: Solver) -> None:
        pass

    def __call__(self, f: Energy, solver: Solver, x0: Tensor | None, num_steps: int) -> Tensor:
        f.pairwise.check(f.unary)
        state = solver.init(f, f.start() if x0 is None else x0)
        if not torch.is_grad_enabled():
            return _steps(f, solver, state, 0, num_steps).x
        length = max(1, math.isqrt(num_steps))
        for first in range(0, num_steps, length):
            state = _again_in_backward(_segment, f, solver, state, first, min(first + length, num_steps))
        return state.x


@dataclass(frozen=True)
class Implicit:
    """The derivative of the fixed point x = T(x) to which the steps lead; ``num_steps`` is not used.

    T(x) = argmin_p <grad f(x), p> + g(p) is a full step, and its fixed points are the stationary points of
    f + g. Steps are taken until |T(x) - x| <= ``tol`` in every entry, at most ``max_steps``; then, with J the
    Jacobian of T and v the gradient with respect to x, the backward pass solves (I - J') w = v by BiCGSTAB,
    one system per image, to a residual of ``tol`` relative to v. If the run or the system is not finished
    after ``max_steps``, a warning is issued: the gradient is inexact.
    """

    tol: float = 1e-5
    max_steps: int = 500

    def __post_init__(self) -> None:
        if not self.tol > 0:
            raise ValueError(f"tol={self.tol!r}; expected a positive number.")
        if not self.max_steps >= 1:
            raise ValueError(f"max_steps={self.max_steps!r}; expected at least 1.")

    def check(self, solver: Solver) -> None:
        if not isinstance(solver, FrankWolfe) or isinstance(solver.regularizer, Simplex):
            raise ValueError(
                f"implicit gradients were asked for with {solver!r}; expected a regularized Frank-Wolfe "
                "solver ('l2fw', 'efw', 'mf'): other solvers have vertices as fixed points, which do not "
                "move, or take steps that depend on more than x."
            )

    def __call__(self, f: Energy, solver: Solver, x0: Tensor | None, num_steps: int) -> Tensor:
        self.check(solver)
        f.pairwise.check(f.unary)
        state = solver.init(f, (f.start() if x0 is None else x0).detach())
        with torch.no_grad():
            state, residual = self._settle(f, solver, state)
        if residual > self.tol:
            warn_caller(
                f"no fixed point was reached in {self.max_steps} steps: |T(x) - x| is {residual:.2g}, "
                f"expected at most tol={self.tol:.2g}. The gradient is inexact. Smaller steps help where the "
                "iterates go back and forth (step=fwcrf.stepsizes.LineSearch(), or step=0.5), and so does a "
                "larger weight (lambda)."
            )
        x = state.x.detach()

        def full_step(x: Tensor) -> Tensor:
            return state.g.argmin(state.f.grad(x))

        y = full_step(x)
        if y.requires_grad:
            y.register_hook(lambda v: self._through_the_fixed_point(full_step, x, v))
        return y

    def _settle(self, f: Energy, solver: Solver, state: Any) -> tuple[Any, float]:
        for k in range(self.max_steps):
            step = look(f, state)
            residual = float(step.direction.abs().amax())
            if residual <= self.tol:
                return state, residual
            state = solver.step(f, state._replace(grad=step.grad), k)
        return state, float(look(f, state).direction.abs().amax())

    def _through_the_fixed_point(
        self, T: Callable[[Tensor], Tensor], x: Tensor, v: Tensor | None
    ) -> Tensor | None:
        if v is None:
            return None
        if torch.is_grad_enabled():
            raise RuntimeError(
                "implicit gradients were asked for with create_graph=True; expected first derivatives only. "
                "gradient='unrolled' has derivatives of any order."
            )
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = T(x)

        def residual_of(w: Tensor) -> Tensor:
            (pulled,) = torch.autograd.grad(y, x, w, retain_graph=True)
            return w - pulled

        w, error = bicgstab(residual_of, v, tol=self.tol, max_iterations=self.max_steps)
        if error > self.tol:
            warn_caller(
                f"the linear system of the implicit gradient has a residual of {error:.2g} after "
                f"{self.max_steps} iterations, relative to the gradient; expected tol={self.tol:.2g}. "
                "The fixed point is close to unstable: a larger weight (lambda) moves it away from that."
            )
        return w


def constant_in(x: Tensor, *tensors: Tensor) -> Tensor:
    """x, with a gradient of 0 in each of the tensors that require one, added to the gradient that x has.

    Autograd raises an error about a tensor that no result depends on, and vertices depend on none.
    """
    learned = [t for t in tensors if t.requires_grad] if torch.is_grad_enabled() else []
    return _ConstantIn.apply(x, *learned) if learned else x  # type: ignore[return-value]


class _ConstantIn(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, *tensors: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return g, *(torch.zeros_like(t) for t in ctx.saved_tensors)


def get(gradient: str | Gradient) -> Gradient:
    """The gradient named "unrolled", "checkpoint" or "implicit"; an object is returned unchanged."""
    if not isinstance(gradient, str):
        if not (callable(gradient) and hasattr(gradient, "check")):
            raise TypeError(
                f"gradient={shown(gradient)}; expected one of {', '.join(_NAMED)}, or a Gradient."
            )
        return gradient
    if gradient not in _NAMED:
        raise ValueError(f"gradient={gradient!r} is not known; expected one of {', '.join(_NAMED)}.")
    return _NAMED[gradient]


_NAMED: dict[str, Gradient] = {
    "unrolled": Unrolled(),
    "checkpoint": Checkpoint(),
    "implicit": Implicit(),
}


def _steps(f: Energy, solver: Solver, state: Any, start: int, stop: int) -> Any:
    for k in range(start, stop):
        state = solver.step(f, state, k)
    return state


def _segment(f: Energy, solver: Solver, state: Any, start: int, stop: int) -> Any:
    if stop - start == 1:
        return _steps(f, solver, state, start, stop)
    for k in range(start, stop):
        state = _again_in_backward(_steps, f, solver, state, k, k + 1)
    return state


def _again_in_backward(
    run: Callable[..., Any], f: Energy, solver: Solver, state: Any, start: int, stop: int
) -> Any:
    """The state after some steps, whose tensors the backward pass computes again.

    A checkpoint stores tensors that are arguments of their own, and gives them to the checkpoint around it to
    compute again. Tensors inside another argument would stay in memory.
    """
    kind = type(state)  # the closure must not hold the state
    fields = [value if isinstance(value, Tensor) else None for value in state]
    rest = [None if isinstance(value, Tensor) else value for value in state]

    def again(*tensors: Tensor | None) -> Any:
        values = [kept if tensor is None else tensor for kept, tensor in zip(rest, tensors, strict=True)]
        return run(f, solver, kind(*values), start, stop)

    return checkpoint(again, *fields, use_reentrant=False, preserve_rng_state=False)


def bicgstab(
    A: Callable[[Tensor], Tensor], b: Tensor, *, tol: float, max_iterations: int
) -> tuple[Tensor, float]:
    """w with A w = b, one system per image of ``(*batch, n, L)``, and the largest |A w - b| / |b|.

    Each image iterates until its residual is at most ``tol``. If the recurrence of an image breaks down, it
    restarts from the current w.
    """
    tiny = torch.finfo(torch.float64).tiny
    norm = inner(b, b).sqrt()
    w, r = torch.zeros_like(b), b
    shadow = direction = r
    rho = inner(shadow, r)
    error = torch.where(norm > 0, 1.0, 0.0)
    for _ in range(max_iterations):
        open_ = error > tol
        if not bool(open_.any()):
            break
        A_direction = A(direction)
        alpha = _ratio(rho, inner(shadow, A_direction)) * open_
        s = r - _each(alpha, b) * A_direction
        A_s = A(s)
        omega = _ratio(inner(A_s, s), inner(A_s, A_s)) * open_
        w = w + _each(alpha, b) * direction + _each(omega, b) * s
        r = s - _each(omega, b) * A_s
        rho_next = inner(shadow, r)
        beta = _ratio(rho_next, rho) * _ratio(alpha, omega)
        error = torch.where(open_, inner(r, r).sqrt() / norm.clamp(min=tiny), error)
        broken = (rho_next.abs() <= 1e-12 * inner(r, r)) | (omega == 0)
        shadow = torch.where(_each(broken, b).bool(), r, shadow)
        direction = r + _each(torch.where(broken, 0.0, beta), b) * (direction - _each(omega, b) * A_direction)
        rho = torch.where(broken, inner(r, r), rho_next)
    # The recurrence drifts from the true residual by rounding, so the true residual is returned.
    residual = A(w) - b
    return w, float((inner(residual, residual).sqrt() / norm.clamp(min=tiny)).max())


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))


def _each(values: Tensor, like: Tensor) -> Tensor:
    """One number per image, ``(*batch,)``, as a factor of ``(*batch, n, L)``."""
    return values.to(like)[..., None, None]
