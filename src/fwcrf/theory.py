"""Bounds for generalized Frank-Wolfe: optimality measure, rates, and tightness of the relaxation.

Notation of the paper: F = f + g with minimum F*, Delta_k = F(x_k) - F*, S_k = S(x_k), L_f the
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

    def decrease_constant(self, gap: Number, step: Number) -> Number:
        return step * gap - 0.5 * self.smoothness * self.diameter**2 * step**2

    def optimality_constant(self, k: int, delta0: Number, step: Number) -> Number:
        return delta0 / ((k + 1) * step) + 0.5 * self.smoothness * self.diameter**2 * step

    def decrease_length(self, gap: Number, length: Number) -> Number:
        """For steps length / |p - x| of at most 1, without clipping."""
        return length / self.diameter * gap - 0.5 * self.smoothness * length**2

    def optimality_length(self, k: int, delta0: Number, length: Number) -> Number:
        return delta0 * self.diameter / ((k + 1) * length) + 0.5 * self.smoothness * self.diameter * length

    def decrease_schedule(self, gap: Number, step: Number) -> Number:
        """For any steps. The rate assumes that they tend to 0 and that their sum is infinite."""
        return self.decrease_constant(gap, step)

    def optimality_schedule(self, delta0: Number, steps: Sequence[Number]) -> Number:
        total, squares = sum(steps), sum(a**2 for a in steps)
        return (delta0 + 0.5 * self.smoothness * self.diameter**2 * squares) / total

    def decrease_adaptive(self, gap: Number) -> Number:
        """For adaptive steps and line search, as for all ``*_adaptive`` methods below."""
        bound = torch.as_tensor(self.smoothness * self.diameter**2, dtype=torch.float64)
        gap = torch.as_tensor(gap, dtype=torch.float64)
        return 0.5 * torch.minimum(gap, gap**2 / bound)

    def optimality_adaptive(self, k: int, delta0: Number) -> Number:
        delta0 = torch.as_tensor(delta0, dtype=torch.float64)
        slow = (2 * self.smoothness * delta0).sqrt() * self.diameter / math.sqrt(k + 1)
        return torch.maximum(2 * delta0 / (k + 1), slow)


@dataclass(frozen=True)
class StronglyConvexG:
    """g sigma-strongly convex, f L-semi-concave: F decreases for steps below 2 omega."""

    smoothness: float
    strong_convexity: float
    diameter: float

    @property
    def omega(self) -> float:
        return self.strong_convexity / (self.smoothness + self.strong_convexity)

    def _rate(self, step: float) -> float:
        return step * min(1.0, 2 - step / self.omega)

    def _excess(self, step: float) -> float:
        return 0.5 * ((self.smoothness + self.strong_convexity) * step**2 - self.strong_convexity * step)

    def decrease_constant(self, gap: Number, step: float) -> Number:
        if step < 2 * self.omega:
            return self._rate(step) * gap
        return step * gap - self._excess(step) * self.diameter**2

    def optimality_constant(self, k: int, delta0: Number, step: float) -> Number:
        if step < 2 * self.omega:
            return delta0 / (self._rate(step) * (k + 1))
        return delta0 / (step * (k + 1)) + self._excess(step) / step * self.diameter**2

    def decrease_length(self, gap: Number, length: float) -> Number:
        """For steps length / |p - x| of at most 1, without clipping."""
        fall = length * (2 * self.strong_convexity * gap) ** 0.5
        return fall - 0.5 * (self.smoothness + self.strong_convexity) * length**2

    def optimality_length(self, k: int, delta0: Number, length: float) -> Number:
        root = math.sqrt(2 * self.strong_convexity)
        total = self.smoothness + self.strong_convexity
        return (delta0 / (length * root * (k + 1)) + total * length / (2 * root)) ** 2

    def decrease_schedule(self, gap: Number, step: float) -> Number:
        return self._rate(step) * gap

    def settled(self, steps: Sequence[float]) -> int:
        """k(omega): the first index from which on all steps are at most omega; len(steps) if there is none.

        The paper's table states 2 omega here; its proof uses omega, and its bound requires it.
        """
        late = [i for i, a in enumerate(steps) if a > self.omega]
        return late[-1] + 1 if late else 0

    def optimality_schedule(self, delta: Number, steps: Sequence[float]) -> Number:
        """``delta`` is Delta at step ``settled(steps)``."""
        return delta / sum(steps[self.settled(steps) :])

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


def tightness(E: Energy, r: Regularizer, *, rounding: str = "nearest") -> Tensor:
    """Upper bound on E(labels) - E* for labels rounded from a *global* minimum of E + r, per image.

    E* <= E(labels) <= E* + M - m + C, with m <= r <= M on the simplices; C is 0 for ``"bcd"`` and
    ``rounding_loss`` for ``"nearest"``.
    """
    n, num_labels = E.unary.shape[-2:]
    low, high = r.bounds(num_labels)
    slack = torch.full(E.unary.shape[:-2], n * (high - low), dtype=torch.float64)
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
