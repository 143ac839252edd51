"""How far to go from x to the oracle's answer p: rules that see a ``Step`` and answer in [0, 1].

An answer is one number, or one per image, ``(*batch,)``. Which known algorithm a rule gives depends on f
and g: a full step is mean field or the concave-convex procedure, 2/(k+2) the classical Frank-Wolfe method.

=================  =================================================  ==========================
rule               step                                               looks at
=================  =================================================  ==========================
Constant(a)        a                                                  nothing
Sequence(steps)    steps[k]; the last one is repeated                 k
Harmonic()         2 / (k + 2)                                        k
InverseSqrt(a)     a / sqrt(k + 1)                                    k
ConstantLength(a)  a / |p - x|                                        x, p
Adaptive()         (S(x) / |p - x|^2 + sigma/2) / (L + sigma)         x, p, grad, L_f, sigma_g
LineSearch()       argmin f + g between x and p                       the same, and P (p - x)
SegmentSearch()    where f + g stops falling between x and p          f along the way
=================  =================================================  ==========================

Steps above 1 are cut to 1. The first four are *schedules*: their ``at(k)`` knows the step before it is
taken, which is what solvers ask for that have no p to move to.
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
from fwcrf.regularizers import Regularizer
from fwcrf.torch_ops.native import has_values


@dataclass(frozen=True, eq=False)
class Step:
    """What a rule may look at: step k starts at x, and may go as far as p."""

    k: int
    f: Objective
    g: Regularizer
    x: Tensor  # (*batch, n, L), as are grad and p
    grad: Tensor  # of f at x
    p: Tensor

    @cached_property
    def direction(self) -> Tensor:
        """d = p - x."""
        return self.p - self.x

    @cached_property
    def change(self) -> Tensor:
        """The change of f's gradient along d: for an energy P d, its one application of P."""
        return self.f.hessian(self.direction)

    @cached_property
    def squared_distance(self) -> Tensor:
        """|p - x|^2 per image."""
        return inner(self.direction, self.direction)

    @cached_property
    def gap(self) -> Tensor:
        """S(x) = <grad, x - p> + g(x) - g(p) per image: not negative, and 0 where x is stationary."""
        return self.g.value(self.x) - self.g.value(self.p) - linear(self.grad, self.direction)

    def towards(self, a: float | Tensor) -> Tensor:
        """x + a (p - x); for a = 1 p itself, to the last bit."""
        if isinstance(a, Tensor):
            return torch.lerp(self.x, self.p, a.to(self.x)[..., None, None])
        return self.p if a == 1 else torch.lerp(self.x, self.p, a)

    def grad_after(self, a: float | Tensor) -> Tensor | None:
        """f's gradient at x + a (p - x), if a rule has looked at its change: it is linear in a."""
        if "change" not in self.__dict__:
            return None
        return self.grad + (a.to(self.x)[..., None, None] if isinstance(a, Tensor) else a) * self.change


Stepsize = Callable[[Step], float | Tensor]

# How well a segment is searched where every look takes a gradient of f.
_ALONG_SEGMENT = 1e-7


def check_steps(value: float | Tensor | Numbers[float | Tensor], name: str) -> None:
    """Refuse steps outside [0, 1]."""
    values = value if isinstance(value, Numbers) else [value]
    for v in values:
        if isinstance(v, Tensor):
            if not has_values(v) or bool(((v >= 0) & (v <= 1)).all()):
                continue
            v = v.detach().tolist()
        elif 0 <= v <= 1:
            continue
        raise ValueError(f"{name}={v!r}; expected steps from 0 to 1.")


class Schedule:
    """A rule that looks at nothing but k."""

    def at(self, k: int) -> float | Tensor:
        raise NotImplementedError

    def __call__(self, step: Step) -> float | Tensor:
        return self.at(step.k)


@dataclass(frozen=True)
class Constant(Schedule):
    """The same step always; 1 is what mean field and the concave-convex procedure take."""

    step: float | Tensor = 1.0  # or one per image, (*batch,)

    def __post_init__(self) -> None:
        check_steps(self.step, "step")

    def at(self, k: int) -> float | Tensor:
        return self.step


@dataclass(frozen=True)
class Sequence(Schedule):
    """steps[k], each a number or one per image; the last one is repeated. A tensor may be learned."""

    steps: Numbers[float | Tensor] | Tensor

    def __post_init__(self) -> None:
        if len(self.steps) == 0:
            raise ValueError("steps is empty; expected at least one number from 0 to 1.")
        check_steps(self.steps, "steps")

    def at(self, k: int) -> float | Tensor:
        return self.steps[min(k, len(self.steps) - 1)]


@dataclass(frozen=True)
class Harmonic(Schedule):
    """2 / (k + 2), starting at k = 0 with a full step."""

    def at(self, k: int) -> float:
        return 2 / (k + 2)


@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """min(1, scale / sqrt(k + 1))."""

    scale: float | Tensor = 1.0

    def __post_init__(self) -> None:
        _check_positive(self.scale, "scale")

    def at(self, k: int) -> float | Tensor:
        return _at_most_one(self.scale / math.sqrt(k + 1))


@dataclass(frozen=True)
class ConstantLength:
    """min(1, length / |p - x|): every step moves x by the same distance, or onto p."""

    length: float | Tensor

    def __post_init__(self) -> None:
        _check_positive(self.length, "length")

    def __call__(self, step: Step) -> Tensor:
        squared = step.squared_distance
        # The derivative of a root at 0 is infinite, and not wanted: such a step is cut to 1.
        far = squared > torch.finfo(squared.dtype).tiny
        distance = torch.where(far, squared, 1.0).sqrt()
        return torch.where(far, self.length / distance, 1.0).clamp(max=1.0)


@dataclass(frozen=True)
class Adaptive:
    """The least of the parabola that bounds f + g from above along the segment.

    a = min(1, (S(x) / |p - x|^2 + sigma_g / 2) / (L_f + sigma_g)): f + g never rises. L_f comes from f
    unless ``smoothness`` gives it: for an energy by Lanczos iteration, once.
    """

    smoothness: float | Tensor | None = None

    def __post_init__(self) -> None:
        s = self.smoothness
        if s is not None and not bool((torch.as_tensor(s) >= 0).all()):
            raise ValueError(f"smoothness={s!r}; expected 0 or more: f - smoothness/2 |x|^2 is concave.")

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

    The gradient of f along the segment is known from P (p - x), and so is the gradient at the next x:
    a step applies P once. If g is quadratic too the answer is in closed form; otherwise f + g is
    decreasing where f is concave along the segment (for p is the oracle's answer), and convex where it is
    not, so that its derivative has one zero to be bracketed.
    """

    def __call__(self, step: Step) -> Tensor:
        d, g = step.direction, step.g
        slope, curvature = linear(step.grad, d), inner(d, step.change)
        if g.quadratic:
            return least_of_parabola(slope + linear(g.grad(step.x), d), curvature + g.curvature(d))

        def derivative(a: Tensor) -> Tensor:
            x = step.towards(a)
            # A label at 0 stays there (d = 0), or leaves it at once: its infinite slope is of no use here.
            x = x.masked_fill(x == 0, torch.finfo(x.dtype).tiny)
            return slope + a * curvature + linear(g.grad(x), d)

        return torch.where(
            curvature <= 0, 1.0, _zero_of_increasing(derivative, slope, 4 * torch.finfo(step.x.dtype).eps)
        )


@dataclass(frozen=True)
class SegmentSearch:
    """Where f + g stops falling between x and p, for any differentiable f: its minimiser where f is convex.

    Each look along the segment takes a gradient of f. f + g never rises.
    """

    def __call__(self, step: Step) -> Tensor:
        f, g, d = step.f, step.g, step.direction

        def derivative(a: Tensor) -> Tensor:
            x = step.towards(a)
            return linear(f.grad(x), d) + linear(g.grad(x), d)

        def total(a: Tensor) -> Tensor:
            x = step.towards(a)
            return f.value(x) + g.value(x)

        a = _zero_of_increasing(derivative, step.gap, _ALONG_SEGMENT)
        start = total(torch.zeros_like(a))
        for _ in range(60):  # only if f is not convex: the zero that was found may be beyond a hill
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
    """A rule is itself, a number (or scalar tensor) is constant, several are a sequence.

    >>> rule(0.5), rule([1.0, 0.5])
    (Constant(step=0.5), Sequence(steps=[1.0, 0.5]))
    """
    if callable(step):
        return step
    if isinstance(step, str):
        raise TypeError(
            f"step={step!r}; expected a number from 0 to 1, several, or a rule of fwcrf.stepsizes."
        )
    if isinstance(step, Tensor):
        return Sequence(step) if step.dim() else Constant(step)
    return Sequence(step) if isinstance(step, Numbers) else Constant(step)


def schedule(step: float | Tensor | Numbers[float] | Stepsize) -> Schedule:
    """The same, for a solver that has no point to move to."""
    found = rule(step)
    if not isinstance(found, Schedule):
        raise ValueError(
            f"step={step!r} needs a point to move to, which this solver does not have; expected a number, "
            "several, or a rule that depends on k alone. 'pgd' takes any rule."
        )
    return found


def least_of_parabola(slope: Tensor, curvature: Tensor) -> Tensor:
    """argmin of slope a + curvature/2 a^2 over [0, 1]; where the parabola is concave, an end."""
    convex = curvature > 0
    inside = (-slope / torch.where(convex, curvature, 1.0)).clamp(0.0, 1.0)
    return torch.where(convex, inside, (slope + 0.5 * curvature <= 0).to(slope))


def _zero_of_increasing(derivative: Callable[[Tensor], Tensor], like: Tensor, tol: float) -> Tensor:
    """Where an increasing function on [0, 1] crosses 0, per image: 1 if it never does, 0 if it starts above.

    Regula falsi with the Illinois weights, and a bisection every third time; of the last bracket the end
    with derivative <= 0 is taken, so that f + g is not above its value at 0.
    """
    with torch.no_grad():
        low, high = torch.zeros_like(like), torch.ones_like(like)
        at_low, at_high = derivative(low), derivative(high)
        below = at_high <= 0  # so everywhere
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
    # One Newton step: 0 but for its derivative, which is that of the zero itself.
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
    if not bool((torch.as_tensor(value) > 0).all()):
        raise ValueError(f"{name}={value!r}; expected a positive number.")
