"""Step-size rules: functions of a ``Step`` that return a in [0, 1] for x <- x + a (p - x).

The result is one number, or one per image, ``(*batch,)``. Depending on f and g, full steps give mean field or
the concave-convex procedure, and 2/(k+2) gives classical Frank-Wolfe.

=================  =================================================  ==========================
rule               step                                               depends on
=================  =================================================  ==========================
Constant(a)        a                                                  -
Sequence(steps)    steps[k]; the last one is repeated                 k
Harmonic()         2 / (k + 2)                                        k
InverseSqrt(a)     a / sqrt(k + 1)                                    k
ConstantLength(a)  a / |p - x|                                        x, p
Adaptive()         (S(x) / |p - x|^2 + sigma/2) / (L + sigma)         x, p, grad, L_f, sigma_g
LineSearch()       argmin f + g between x and p                       x, p, grad, g, P (p - x)
SegmentSearch()    a root of (f + g)' between x and p                 f, g on the segment
=================  =================================================  ==========================

Steps above 1 are clipped to 1. The first four are *schedules*: ``at(k)`` returns the step from k alone.
Solvers without a p accept only schedules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Numbers
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fwcrf.energy import Objective, inner, linear
from fwcrf.inputs.numbers import real, reals
from fwcrf.regularizers import Regularizer
from fwcrf.torch_ops.native import as_tensor, has_values
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True, eq=False)
class Step:
    """The arguments of a rule: step k goes from x towards p, the oracle's result."""

    k: int
    f: Objective
    g: Regularizer
    x: Tensor  # (*batch, n, L), as are grad and p
    grad: Tensor  # of f at x
    p: Tensor

    __repr__ = in_one_line

    @cached_property
    def direction(self) -> Tensor:
        """d = p - x."""
        return self.p - self.x

    @cached_property
    def change(self) -> Tensor:
        """Hess f d, the change of f's gradient along d. For an energy it is P d, one application of P."""
        return self.f.hessian(self.direction)

    @cached_property
    def squared_distance(self) -> Tensor:
        """|p - x|^2 per image."""
        return inner(self.direction, self.direction)

    @cached_property
    def gap(self) -> Tensor:
        """S(x) = <grad, x - p> + g(x) - g(p) per image: at least 0, and 0 if x is stationary."""
        return self.g.value(self.x) - self.g.value(self.p) - linear(self.grad, self.direction)

    def towards(self, a: float | Tensor) -> Tensor:
        """x + a (p - x); exactly p for a = 1."""
        if isinstance(a, Tensor):
            return torch.lerp(self.x, self.p, a.to(self.x)[..., None, None])
        return self.p if a == 1 else torch.lerp(self.x, self.p, a)

    def grad_after(self, a: float | Tensor) -> Tensor | None:
        """f's gradient at x + a (p - x), by linearity in a. None if no rule has computed ``change``."""
        if "change" not in self.__dict__:
            return None
        return self.grad + (a.to(self.x)[..., None, None] if isinstance(a, Tensor) else a) * self.change


Stepsize = Callable[[Step], float | Tensor]

# Tolerance of SegmentSearch in a; every evaluation costs a gradient of f.
_ALONG_SEGMENT = 1e-7


def check_steps(value: float | Tensor | Numbers[float | Tensor], name: str) -> None:
    """Raise for steps outside [0, 1]."""
    values = value if isinstance(value, Numbers) else [value]
    for v in values:
        if isinstance(v, Tensor):
            if not has_values(v) or bool(((v >= 0) & (v <= 1)).all()):
                continue
            v = v.detach().tolist()
            raise ValueError(f"{name}={v!r}; expected steps from 0 to 1.")
        real(v, name, "steps from 0 to 1", lambda a: 0 <= a <= 1)


class Schedule:
    """A rule that depends on k alone."""

    def at(self, k: int) -> float | Tensor:
        raise NotImplementedError

    def __call__(self, step: Step) -> float | Tensor:
        return self.at(step.k)


@dataclass(frozen=True)
class Constant(Schedule):
    """The same step for all k. Mean field and the concave-convex procedure have step 1."""

    step: float | Tensor = 1.0  # a number, or one per image, (*batch,)

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_steps(self.step, "step")

    def at(self, k: int) -> float | Tensor:
        return self.step


@dataclass(frozen=True)
class Sequence(Schedule):
    """steps[k], each a number or one per image; the last one is repeated. A tensor is learnable."""

    steps: Numbers[float | Tensor] | Tensor

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        if len(self.steps) == 0:
            raise ValueError("steps is empty; expected at least one number from 0 to 1.")
        check_steps(self.steps, "steps")

    def at(self, k: int) -> float | Tensor:
        return self.steps[min(k, len(self.steps) - 1)]


@dataclass(frozen=True)
class Harmonic(Schedule):
    """2 / (k + 2): a full step for k = 0."""

    def at(self, k: int) -> float:
        return 2 / (k + 2)


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """min(1, scale / sqrt(k + 1))."""

    scale: float | Tensor = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        _check_positive(self.scale, "scale")

    def at(self, k: int) -> float | Tensor:
        return _at_most_one(self.scale / math.sqrt(k + 1))


@dataclass(frozen=True)
class ConstantLength:
    """min(1, length / |p - x|): every step moves x by the same distance, or onto p."""

    length: float | Tensor

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        _check_positive(self.length, "length")

    def __call__(self, step: Step) -> Tensor:
        squared = step.squared_distance
        # sqrt has an infinite derivative at 0; there the step is the constant 1.
        far = squared > torch.finfo(squared.dtype).tiny
        distance = torch.where(far, squared, 1.0).sqrt()
        return torch.where(far, self.length / distance, 1.0).clamp(max=1.0)


@dataclass(frozen=True)
class Adaptive:
    """The minimizer of the parabola that bounds f + g from above along the segment.

    a = min(1, (S(x) / |p - x|^2 + sigma_g / 2) / (L_f + sigma_g)): f + g never increases. ``smoothness`` is
    L_f; None means ``f.smoothness``, which an energy computes once by Lanczos iteration.
    """

    smoothness: float | Tensor | None = None

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        s = self.smoothness
        if s is not None and not bool((as_tensor(s) >= 0).all()):
            raise ValueError(f"smoothness={s!r}; expected 0 or more, with f - smoothness/2 |x|^2 concave.")

    def __call__(self, step: Step) -> Tensor:
        L = step.f.smoothness if self.smoothness is None else self.smoothness
        sigma = step.g.strong_convexity
        squared = step.squared_distance
        bound = (L + sigma) * squared
        useful = bound > 0
        least = (step.gap + 0.5 * sigma * squared) / torch.where(useful, bound, 1.0)
        return torch.where(useful, least, 1.0).clamp(0.0, 1.0)


@dataclass(frozen=True)
class LineSearch:
    """The exact minimiser of f + g between x and p, for a quadratic f.

    P (p - x) gives the gradient of f along the segment and at the next x, so a step applies P once. If g is
    quadratic too, the step has a closed form. Otherwise, if f is concave along the segment, f + g decreases
    up to p, because p minimizes <grad, p> + g(p). If f is convex along it, so is f + g, and the root of the
    derivative is bracketed.
    """

    def __call__(self, step: Step) -> Tensor:
        d, g = step.direction, step.g
        slope, curvature = linear(step.grad, d), inner(d, step.change)
        if g.quadratic:
            return least_of_parabola(slope + linear(g.grad(step.x), d), curvature + g.curvature(d))

        def derivative(a: Tensor) -> Tensor:
            x = step.towards(a)
            # grad g is infinite at x = 0; there d = 0 or the entry grows, so a tiny x gives a finite slope.
            x = x.masked_fill(x == 0, torch.finfo(x.dtype).tiny)
            return slope + a * curvature + linear(g.grad(x), d)

        return torch.where(
            curvature <= 0, 1.0, _zero_of_increasing(derivative, slope, 4 * torch.finfo(step.x.dtype).eps)
        )


@dataclass(frozen=True)
class SegmentSearch:
    """A root of (f + g)' between x and p, for any differentiable f; the minimiser if f is convex.

    Each evaluation on the segment costs a gradient of f, if f has no ``slope_along``, and one of g, if g is
    not quadratic. The step is halved until f + g does not increase.
    """

    def __call__(self, step: Step) -> Tensor:
        f, g, d = step.f, step.g, step.direction
        along = getattr(f, "slope_along", None)
        of_f = (lambda a: linear(f.grad(step.towards(a)), d)) if along is None else along(step.x, step.p)
        if g.quadratic:
            start, curvature = linear(g.grad(step.x), d), g.curvature(d)

        def derivative(a: Tensor) -> Tensor:
            of_g = start + a * curvature if g.quadratic else linear(g.grad(step.towards(a)), d)
            return of_f(a) + of_g

        def total(a: Tensor) -> Tensor:
            x = step.towards(a)
            return f.value(x) + g.value(x)

        a = _zero_of_increasing(derivative, step.gap, _ALONG_SEGMENT)
        start = total(torch.zeros_like(a))
        for _ in range(60):  # only for a non-convex f: f + g may have a maximum before the root
            higher = total(a) > start
            if not bool(higher.any()):
                return a
            a = torch.where(higher, 0.5 * a, a)
        return torch.where(higher, 0.0, a)


@dataclass(frozen=True)
class Geometric:
    """From ``start`` at step 0 to ``end`` at step ``steps - 1`` by equal ratios, and ``end`` from there on.

    A plan of one step is ``end`` at once.

    >>> [round(Geometric(0.4, 0.1, steps=3)(k), 3) for k in range(5)]
    [0.4, 0.2, 0.1, 0.1, 0.1]
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)!r}; expected a positive number.")
        if isinstance(self.steps, bool) or int(self.steps) != self.steps or self.steps < 1:
            raise ValueError(f"steps={self.steps!r}; expected a whole number, 1 or more.")

    def __call__(self, k: int) -> float:
        done = min(k / (self.steps - 1), 1.0) if self.steps > 1 else 1.0
        return self.start ** (1 - done) * self.end**done


def rule(step: float | Tensor | Numbers[float] | Stepsize) -> Stepsize:
    """The rule for ``step``: itself, ``Constant`` for a number or scalar tensor, ``Sequence`` for several.

    >>> rule(0.5), rule([1.0, 0.5])
    (Constant(step=0.5), Sequence(steps=[1.0, 0.5]))
    """
    if callable(step):
        return step
    if isinstance(step, str):
        raise TypeError(
            f"step={step!r}; expected a number from 0 to 1, a list, or a rule of fwcrf.stepsizes."
        )
    if isinstance(step, Tensor):
        return Sequence(step) if step.dim() else Constant(step)
    return Sequence(step) if isinstance(step, Numbers) else Constant(step)


def schedule(step: float | Tensor | Numbers[float] | Stepsize) -> Schedule:
    """``rule`` for a solver without a target point p. Raises unless the rule is a schedule."""
    found = rule(step)
    if not isinstance(found, Schedule):
        raise ValueError(
            f"step={step!r} depends on a target point, which this solver does not have; expected a number, "
            "a list of numbers, or a rule that depends on k alone. 'pgd' takes any rule."
        )
    return found


def least_of_parabola(slope: Tensor, curvature: Tensor) -> Tensor:
    """argmin of slope a + curvature/2 a^2 over a in [0, 1]; 0 or 1 if the parabola is concave."""
    convex = curvature > 0
    inside = (-slope / torch.where(convex, curvature, 1.0)).clamp(0.0, 1.0)
    return torch.where(convex, inside, (slope + 0.5 * curvature <= 0).to(slope))


def _zero_of_increasing(derivative: Callable[[Tensor], Tensor], like: Tensor, tol: float) -> Tensor:
    """The root of an increasing function on [0, 1], per image: 1 if it is negative, 0 if it is positive.

    Regula falsi with Illinois weights, and a bisection every third time. Returns the left end of the last
    bracket, where the derivative is <= 0, so that f + g is not above its value at 0.
    """
    with torch.no_grad():
        low, high = torch.zeros_like(like), torch.ones_like(like)
        at_low, at_high = derivative(low), derivative(high)
        below = at_high <= 0  # hence <= 0 everywhere
        for i in range(60):
            if bool((below | (at_low >= 0) | (high - low <= tol)).all()):
                break
            a = 0.5 * (low + high)
            secant = low - at_low * (high - low) / (at_high - at_low)
            if i % 3 != 2:
                a = torch.where((secant > low) & (secant < high), secant, a)
            value = derivative(a)
            left = value <= 0
            low, high = torch.where(left, a, low), torch.where(left, high, a)
            at_low, at_high = (
                torch.where(left, value, 0.5 * at_low),
                torch.where(left, 0.5 * at_high, value),
            )
        a = torch.where(below, 1.0, low)
    inside = (a > 0) & (a < 1)
    if not torch.is_grad_enabled() or not bool(inside.any()):
        return a
    # A Newton step of value 0, whose derivative is the derivative of the root.
    with torch.enable_grad():
        point = a.clone().requires_grad_()
        (rate,) = torch.autograd.grad(derivative(point).sum(), point)
    residual = derivative(a)
    return a - torch.where(inside, (residual - residual.detach()) / rate, 0.0)


def _at_most_one(a: float | Tensor) -> float | Tensor:
    return a.clamp(max=1.0) if isinstance(a, Tensor) else min(1.0, a)


def _check_positive(value: float | Tensor, name: str) -> None:
    if isinstance(value, Tensor) and not has_values(value):
        return
    if not bool((reals(value, name) > 0).all()):
        raise ValueError(f"{name}={value!r}; expected a positive number.")
