"""Negative Tsallis entropies: softmax for alpha = 1, projection for alpha = 2, and further exponents."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.regularizers.closed import Entropy, SquaredL2
from fwcrf.regularizers.dual import InverseHessian, Weights, exp, implicit, increasing_root, solve_undecided
from fwcrf.regularizers.regularizer import (
    SumOverNodes,
    Weight,
    check_weight,
    extremes,
    like,
    over_nodes,
    smallest,
)
from fwcrf.torch_ops.precision import widest
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True)
class Tsallis(SumOverNodes):
    """r(x) = weight * sum (x^alpha - x) / (alpha (alpha - 1)), 1 <= alpha <= 4.

    alpha = 1 is ``Entropy``, and alpha = 2 is ``SquaredL2`` up to a constant, with the same code. For
    alpha > 1 the oracle may be sparse:

        p_s = max(u - (alpha - 1) c_s / weight, 0) ^ (1 / (alpha - 1)),   u such that sum p = 1,

    by Newton's method, and for alpha = 1.5 by the quadratic formula on the support. The strong convexity is
    2 * weight for alpha = 1 and the weight up to alpha = 2. Above it is 0, because the curvature vanishes as
    x tends to 0; an error e in c, such as rounding, then changes p by up to e^(1 / (alpha - 1)).

    >>> Tsallis(1.5).argmin(torch.tensor([[0.0, 1.0, 4.0]]))
    tensor([[0.8307, 0.1693, 0.0000]])
    """

    alpha: float = 1.5
    weight: Weight = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        if not 1 <= self.alpha <= 4:
            raise ValueError(
                f"alpha={self.alpha!r}; expected a number from 1 (Entropy) to 4, where 2 is SquaredL2."
            )
        check_weight(self.weight, "Tsallis' weight")

    @property
    def quadratic(self) -> bool:
        return self.alpha == 2

    @property
    def strong_convexity(self) -> float | Tensor:
        if self.alpha == 1:
            return Entropy(self.weight).strong_convexity
        return smallest(self.weight) * (1.0 if self.alpha <= 2 else 0.0)

    def argmin(self, c: Tensor) -> Tensor:
        if self.alpha == 1:
            return Entropy(self.weight).argmin(c)
        if self.alpha == 2:
            return SquaredL2(self.weight).argmin(c)
        return _argmin(c, self.alpha, self.weight)

    def per_node(self, x: Tensor) -> Tensor:
        terms = torch.special.xlogy(x, x) if self.alpha == 1 else x * self._power(x) / self.alpha
        return over_nodes(self.weight) * terms.sum(-1, dtype=widest(x.device))

    def grad(self, x: Tensor) -> Tensor:
        power = torch.log(x) if self.alpha == 1 else self._power(x)
        return like(self.weight, x) * (power + 1 / self.alpha)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        log = math.log(num_labels)
        power = -log if self.alpha == 1 else math.expm1((1 - self.alpha) * log) / (self.alpha - 1)
        return extremes(self.weight)[1] * power / self.alpha, 0.0

    def curvature(self, d: Tensor) -> Tensor:
        return SquaredL2(self.weight).curvature(d) if self.quadratic else super().curvature(d)

    def _power(self, x: Tensor) -> Tensor:
        """(x^(alpha - 1) - 1) / (alpha - 1), which tends to log x."""
        return x - 1 if self.alpha == 2 else torch.expm1((self.alpha - 1) * torch.log(x)) / (self.alpha - 1)


def _solve(z: Tensor, weights: Weights, alpha: float) -> Tensor:
    (weight,) = weights
    beta = alpha - 1

    def solve(z: Tensor, weights: Weights) -> Tensor:
        scaled = z * (beta / weights[0])
        return _three_halves(scaled) if alpha == 1.5 else _any_alpha(scaled, alpha)

    return solve_undecided(z, weights, weight / beta, solve)


def _any_alpha(z: Tensor, alpha: float) -> Tensor:
    """max(u - z, 0) ^ (1 / beta) up to a factor, beta = alpha - 1, with the largest entry q = u^(1 / beta).

    q is the unknown, and p is q times powers of 1 - z / u, which tend to exponentials as alpha tends to 1.
    The sum is linear in q in the limit alpha = 1 and, on a fixed support, for alpha = 2. It is convex for
    alpha <= 2.
    """
    beta = alpha - 1
    nearly_one = 1 - torch.finfo(z.dtype).eps

    def relative(q: Tensor) -> tuple[Tensor, Tensor]:
        """-z / u, and (1 - z / u) ^ (1 / beta)."""
        minus = (z / -q.pow(beta)).clamp_(min=-nearly_one)
        # sign is 0 off the support and 1 on it; a comparison and torch.where are much slower.
        return minus, exp(torch.log1p(minus).mul_(1 / beta)).mul_((minus + nearly_one).sign_())

    def evaluate(q: Tensor) -> tuple[Tensor, Tensor]:
        minus, power = relative(q)
        total = power.sum(-1, keepdim=True)
        # dp_s/dq = (p_s / q)^(2 - alpha): the power without one factor 1 - z / u.
        slope = power.div_(minus.add_(1)).sum(-1, keepdim=True)
        value = q * total - 1
        return value, q - value / slope

    high = z.new_ones(len(z), 1)
    digits = 0.6 if alpha < 2 else 0.9  # above 2 the slope has poles: converge further
    q = increasing_root(evaluate, high / z.shape[-1], high, tolerance=torch.finfo(z.dtype).eps ** digits)
    return relative(q)[1]


def _three_halves(z: Tensor) -> Tensor:
    """max(u - z, 0)^2: Newton finds the support; on it, u is the root of a quadratic equation.

    Newton's unknown is u, and its function is the norm of max(u - z, 0), which is convex.
    """

    def evaluate(u: Tensor) -> tuple[Tensor, Tensor]:
        root = (u - z).clamp_(min=0)
        total = root.sum(-1, keepdim=True)
        norm = torch.linalg.vector_norm(root, dim=-1, keepdim=True)
        return norm - 1, u - (norm - 1) * norm / total

    high = z.new_ones(len(z), 1)
    low = high / math.sqrt(z.shape[-1])
    u = increasing_root(evaluate, low, high, tolerance=torch.finfo(z.dtype).eps ** 0.6)
    support = z < u
    size = support.sum(-1, keepdim=True)
    inside = torch.where(support, z, 0.0)
    mean = inside.sum(-1, keepdim=True) / size
    variance = torch.where(support, z - mean, 0.0).square_().sum(-1, keepdim=True)
    u = mean + ((1 - variance).clamp_(min=0) / size).sqrt()
    return (u - z).clamp_(min=0).square_()


def _inverse_hessian(p: Tensor, weights: Weights, alpha: float) -> InverseHessian:
    (weight,) = weights
    # Above alpha = 2 it is unbounded as p tends to 0: entries below rounding count as off the support.
    least = torch.finfo(p.dtype).eps if alpha > 2 else 0.0
    support = p > least
    inside = torch.where(support, p, 1.0)
    return InverseHessian(torch.where(support, inside.pow(2 - alpha) / weight, 0.0))


def _gradients(p: Tensor, weights: Weights, alpha: float) -> Weights:
    inside = torch.where(p > 0, p, 1.0)
    return (torch.expm1((alpha - 1) * torch.log(inside)) / (alpha - 1),)


_argmin = implicit("tsallis", _solve, _inverse_hessian, _gradients)
