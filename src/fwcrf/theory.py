"""Bounds for generalized Frank-Wolfe: optimality measure, rates, and tightness of the relaxation.

Notation of the paper: F = f + g with minimum ``F*``, ``Delta_k = F(x_k) - F*``, S_k = S(x_k), L_f the
semi-concavity of f, sigma_g the strong convexity of g, Omega the diameter of the domain. After each step
F(x_k) - F(x_{k+1}) >= delta_k (the *decrease* bounds), and min_{i <= k} S_i <= B_k (the *optimality* bounds).
Each class below is one of the conditions of the table, with one pair of methods per step-size rule::

    ConvexG(L, Omega)                 g convex
    StronglyConvexG(L, sigma, Omega)  g strongly convex
    ConcaveF(Omega)                   f concave, g convex

Arguments and results are numbers, or tensors with one number per image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.energy import Energy, Objective
from fwcrf.regularizers import Regularizer
from fwcrf.spectrum import extreme_eigenvalues
from fwcrf.stepsizes import Step
from fwcrf.torch_ops.native import as_tensor
from fwcrf.torch_ops.printed import in_one_line

Number = float | Tensor


def conditional_gradient_norm(f: Objective, g: Regularizer, x: Tensor) -> Tensor:
    """S(x) = max_p <grad f(x), x - p> + g(x) - g(p) per image.

    It is at least sigma/2 |x - p|^2 for the maximizer p, and 0 if and only if x is stationary.

    >>> from fwcrf.pairwise import Matrix
    >>> from fwcrf.regularizers import Simplex
    >>> E = Energy(Matrix(torch.zeros(4, 4), num_labels=2), torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    >>> conditional_gradient_norm(E, Simplex(), torch.full((2, 2), 0.5))
    tensor(1.5000, dtype=torch.float64)
    """
    grad = f.grad(x)
    return Step(0, f, g, x, grad, g.argmin(grad)).gap


def diameter(n: int) -> float:
    """Omega = sqrt(2 n) of a product of n simplices: the distance of labellings that differ in every node."""
    return math.sqrt(2 * n)


@dataclass(frozen=True)
class ConvexG:
    """g convex, f L-semi-concave."""

    smoothness: Number
    diameter: Number

    __repr__ = in_one_line

    def decrease_constant(self, gap: Number, step: Number) -> Number:
        return step * gap - 0.5 * self.smoothness * self.diameter**2 * step**2

    def optimality_constant(self, k: int, delta0: Number, step: Number) -> Number:
        return _bound(delta0, (k + 1) * step) + 0.5 * self.smoothness * self.diameter**2 * step

    def decrease_length(self, gap: Number, length: Number) -> Number:
        """For steps length / |p - x| of at most 1, without clipping."""
        return length / self.diameter * gap - 0.5 * self.smoothness * length**2

    def optimality_length(self, k: int, delta0: Number, length: Number) -> Number:
        return (
            _bound(delta0 * self.diameter, (k + 1) * length) + 0.5 * self.smoothness * self.diameter * length
        )

    def decrease_schedule(self, gap: Number, step: Number) -> Number:
        """For any steps. The rate assumes that they tend to 0 and that their sum is infinite."""
        return self.decrease_constant(gap, step)

    def optimality_schedule(self, delta0: Number, steps: Sequence[Number]) -> Number:
        total, squares = sum(steps), sum(a**2 for a in steps)
        return _bound(delta0 + 0.5 * self.smoothness * self.diameter**2 * squares, total)

    def decrease_adaptive(self, gap: Number) -> Number:
        """For adaptive steps and line search, as for all ``*_adaptive`` methods below."""
        bound = as_tensor(self.smoothness * self.diameter**2, torch.float64)
        gap = as_tensor(gap, torch.float64)
        return 0.5 * torch.minimum(gap, as_tensor(_bound(gap**2, bound)))

    def optimality_adaptive(self, k: int, delta0: Number) -> Number:
        delta0 = as_tensor(delta0, torch.float64)
        slow = (2 * self.smoothness * delta0).sqrt() * self.diameter / math.sqrt(k + 1)
        return torch.maximum(2 * delta0 / (k + 1), slow)


@dataclass(frozen=True)
class StronglyConvexG:
    """g sigma-strongly convex, f L-semi-concave: F decreases for steps below 2 omega."""

    smoothness: Number
    strong_convexity: Number
    diameter: Number

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        if not bool((as_tensor(self.strong_convexity) > 0).all()):
            raise ValueError(
                f"strong_convexity={self.strong_convexity!r}; expected positive numbers. ConvexG has the "
                "bounds for a g that is convex only."
            )

    @property
    def omega(self) -> Number:
        return self.strong_convexity / (self.smoothness + self.strong_convexity)

    def _rate(self, step: Number) -> Number:
        return step * _at_most(1.0, 2 - step / self.omega)

    def _excess(self, step: Number) -> Number:
        return 0.5 * ((self.smoothness + self.strong_convexity) * step**2 - self.strong_convexity * step)

    def decrease_constant(self, gap: Number, step: Number) -> Number:
        long = step * gap - self._excess(step) * self.diameter**2
        return _choose(step < 2 * self.omega, self._rate(step) * gap, long)

    def optimality_constant(self, k: int, delta0: Number, step: Number) -> Number:
        short = step < 2 * self.omega
        long = _bound(delta0 + (k + 1) * self._excess(step) * self.diameter**2, step * (k + 1))
        return _choose(short, _bound(delta0, _choose(short, self._rate(step), 1.0) * (k + 1)), long)

    def decrease_length(self, gap: Number, length: Number) -> Number:
        """For steps length / |p - x| of at most 1, without clipping."""
        fall = length * (2 * self.strong_convexity * gap) ** 0.5
        return fall - 0.5 * (self.smoothness + self.strong_convexity) * length**2

    def optimality_length(self, k: int, delta0: Number, length: Number) -> Number:
        root = (2 * self.strong_convexity) ** 0.5
        total = self.smoothness + self.strong_convexity
        return (_bound(delta0, length * root * (k + 1)) + total * length / (2 * root)) ** 2

    def decrease_schedule(self, gap: Number, step: Number) -> Number:
        return self._rate(step) * gap

    def settled(self, steps: Sequence[Number]) -> int | Tensor:
        """k(omega): the first index from which on all steps are at most omega; len(steps) if there is none.

        One per image if the steps or omega are. The paper's table states 2 omega here; its proof uses omega,
        and its bound requires it.
        """
        first: int | Tensor = 0
        for i, a in enumerate(steps):
            first = _choose(a > self.omega, i + 1, first)  # type: ignore[assignment]
        return first

    def optimality_schedule(self, delta: Number, steps: Sequence[Number]) -> Number:
        """``delta`` is Delta at step ``settled(steps)``. Infinite if there is no such step."""
        first = self.settled(steps)
        return _bound(delta, sum(_choose(first <= i, a, 0.0) for i, a in enumerate(steps)))

    def decrease_adaptive(self, gap: Number) -> Number:
        return self.omega * gap

    def optimality_adaptive(self, k: int, delta0: Number) -> Number:
        return delta0 / (self.omega * (k + 1))


class ConcaveF(ConvexG):
    """f concave: the bounds of a convex g with L = 0; adaptive steps and line search are full steps."""

    def __init__(self, diameter: Number) -> None:
        super().__init__(smoothness=0.0, diameter=diameter)

    def decrease_adaptive(self, gap: Number) -> Number:
        return gap

    def optimality_adaptive(self, k: int, delta0: Number) -> Number:
        return delta0 / (k + 1)


def _choose(condition: bool | Tensor, yes: Number, no: Number) -> Number:
    """``yes`` for the images that meet the condition, else ``no``."""
    if not isinstance(condition, Tensor):
        return yes if condition else no
    return torch.where(
        condition,
        *(as_tensor(v, torch.float64 if isinstance(v, float) else None) for v in (yes, no)),
    )


def _at_most(limit: float, value: Number) -> Number:
    return _choose(value > limit, limit, value)


def _bound(numerator: Number, denominator: Number) -> Number:
    """numerator / denominator, and infinity, which is no bound, for a denominator of 0."""
    zero = denominator == 0
    return _choose(zero, math.inf, numerator / _choose(zero, 1.0, denominator))


def tightness(E: Energy, r: Regularizer, *, rounding: str = "nearest") -> Tensor:
    """Upper bound on E(labels) - E* for labels rounded from a *global* minimum of E + r, per image.

    E* <= E(labels) <= E* + M - m + C, with m <= r <= M on the simplices; C is 0 for ``"bcd"`` and
    ``rounding_loss`` for ``"nearest"``.
    """
    n, num_labels = E.unary.shape[-2:]
    low, high = r.bounds(num_labels)
    slack = torch.full(E.unary.shape[:-2], n * (high - low), dtype=torch.float64, device=E.unary.device)
    if rounding == "bcd":
        return slack
    if rounding != "nearest":
        raise ValueError(f"rounding={rounding!r}; bounds are known for nearest and bcd only.")
    return slack + rounding_loss(E)


def rounding_loss(E: Energy) -> Tensor:
    """C = sqrt(n (1 - 1/L)) (|u| + sqrt(n) |P|), the largest increase of E by nearest rounding, per image."""
    n, num_labels = E.unary.shape[-2:]
    found = extreme_eigenvalues(E.pairwise, E.unary)
    norm = torch.maximum(found.highest + found.highest_error, found.lowest_error - found.lowest)
    size = E.unary.square().sum((-2, -1), dtype=torch.float64).sqrt()
    return math.sqrt(n * (1 - 1 / num_labels)) * (size + math.sqrt(n) * norm)


def convexified_tightness(c: Tensor) -> Tensor:
    """The bound for the convex relaxation, r = <x, c x> - <c, x>, with ``"bcd"`` rounding: sum c / 4."""
    return 0.25 * c.sum((-2, -1), dtype=torch.float64)
