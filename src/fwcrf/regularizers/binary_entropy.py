"""The negative binary entropy of each label, summed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.regularizers.dual import InverseHessian, Weights, exp, implicit, increasing_root, least_exponent
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
class BinaryEntropy(SumOverNodes):
    """r(x) = weight * sum x log x + (1 - x) log(1 - x).

    The oracle is p_s = sigmoid((tau - c_s) / weight) with tau such that sum p = 1. The second derivative
    weight / (x (1 - x)) is 4 * weight or more, which is the strong convexity.

    >>> BinaryEntropy(0.5).argmin(torch.tensor([[0.0, 0.5, 1.0]]))
    tensor([[0.5491, 0.3094, 0.1415]])
    """

    weight: Weight = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_weight(self.weight, "BinaryEntropy's weight")

    @property
    def strong_convexity(self) -> float | Tensor:
        return 4 * smallest(self.weight)

    def argmin(self, c: Tensor) -> Tensor:
        return _argmin(c, 0.0, self.weight)

    def per_node(self, x: Tensor) -> Tensor:
        terms = torch.special.xlogy(x, x) + torch.special.xlog1py(1 - x, -x)
        return over_nodes(self.weight) * terms.sum(-1, dtype=widest(x.device))

    def grad(self, x: Tensor) -> Tensor:
        return like(self.weight, x) * (torch.log(x) - torch.log1p(-x))

    def bounds(self, num_labels: int) -> tuple[float, float]:
        if num_labels == 1:
            return 0.0, 0.0
        rest = (num_labels - 1) * math.log1p(-1 / num_labels)
        return extremes(self.weight)[1] * (rest - math.log(num_labels)), 0.0


def _solve(z: Tensor, weights: Weights, _: float) -> Tensor:
    """p = o e / (1 + o e), where e = exp(-z / weight) and o = q / (1 - q) are the odds of the largest p, q.

    The remaining labels sum to 1 - q = 1 / (1 + o). Their sum of o (1 + o) e / (1 + o e) is therefore 1. It
    is convex in o and avoids the cancellation in 1 - q. With a the sum of e over the remaining labels, the
    root is at most 1.62 times smaller than 1 / sqrt(a) (for a < 1) or 1 / a.
    """
    (weight,) = weights
    scaled = z / -weight
    possible = scaled > least_exponent(z.dtype)
    e = exp(scaled)
    rest = e.scatter(-1, z.argmin(-1, keepdim=True), 0.0)
    a = rest.sum(-1, keepdim=True).clamp_(min=torch.finfo(z.dtype).tiny)  # 0 for one label

    def evaluate(o: Tensor) -> tuple[Tensor, Tensor]:
        product = o * rest
        below = (product + 1).reciprocal_()
        value = (product * below).sum(-1, keepdim=True) * (1 + o) - 1
        slope = (o * product).add_(1 + 2 * o).mul_(rest).mul_(below).mul_(below).sum(-1, keepdim=True)
        return value, o - value / slope

    high = torch.where(a < 1, a.rsqrt(), 1 / a)
    low = 2 / (a + (a * (a + 4)).sqrt())
    o = increasing_root(evaluate, low, high, tolerance=torch.finfo(z.dtype).eps ** 0.6)
    return torch.where(possible, e / (1 / o + e), 0.0)


def _complement(p: Tensor) -> Tensor:
    """1 - p; for p > 1/2 computed as the sum of the row's remaining entries, without cancellation."""
    large = p > 0.5
    return torch.where(large, torch.where(large, 0.0, p).sum(-1, keepdim=True), 1 - p)


def _inverse_hessian(p: Tensor, weights: Weights, _: float) -> InverseHessian:
    (weight,) = weights
    return InverseHessian(p * _complement(p) / weight)


def _gradients(p: Tensor, weights: Weights, _: float) -> Weights:
    rest = _complement(p)
    inside = (p > 0) & (rest > 0)
    return (torch.log(torch.where(inside, p, 1.0)) - torch.log(torch.where(inside, rest, 1.0)),)


_argmin = implicit("binary_entropy", _solve, _inverse_hessian, _gradients)
