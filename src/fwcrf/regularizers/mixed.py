"""The sum of half the squared norm and the negative entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.regularizers.closed import Entropy, SquaredL2
from fwcrf.regularizers.dual import (
    InverseHessian,
    Weights,
    exp,
    implicit,
    increasing_root,
    least_exponent,
    solve_undecided,
)
from fwcrf.regularizers.regularizer import SumOverNodes, Weight, check_weight, extremes, smallest
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True)
class Mixed(SumOverNodes):
    """r(x) = l2 / 2 |x|^2 + entropy * sum x log x.

    The oracle solves l2 p_s + entropy log p_s = tau - c_s with tau such that sum p = 1. For given tau the
    solution is p_s = entropy / l2 * omega((tau - c_s) / entropy + log(l2 / entropy)). Wright's function,
    omega(x) + log omega(x) = x, needs no exponential that could overflow.

    >>> Mixed(l2=1.0, entropy=0.1).argmin(torch.tensor([[0.0, 0.5, 2.0]]))
    tensor([[7.0616e-01, 2.9384e-01, 1.6975e-06]])
    """

    l2: Weight = 1.0
    entropy: Weight = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_weight(self.l2, "Mixed's l2")
        check_weight(self.entropy, "Mixed's entropy")

    @property
    def _parts(self) -> tuple[SquaredL2, Entropy]:
        return SquaredL2(self.l2), Entropy(self.entropy)

    @property
    def strong_convexity(self) -> float | Tensor:
        return smallest(self.l2 + 2 * self.entropy)

    def argmin(self, c: Tensor) -> Tensor:
        return _argmin(c, 0.0, self.l2, self.entropy)

    def per_node(self, x: Tensor) -> Tensor:
        square, entropy = self._parts
        return square.per_node(x) + entropy.per_node(x)

    def grad(self, x: Tensor) -> Tensor:
        square, entropy = self._parts
        return square.grad(x) + entropy.grad(x)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        low, _ = extremes(self.l2 / (2 * num_labels) - self.entropy * math.log(num_labels))
        return low, extremes(self.l2)[1] / 2


def wright_omega(x: Tensor) -> Tensor:
    """omega > 0 with omega + log omega = x, to float rounding, if exp(x) does not underflow.

    Winitzki's guess for Lambert's W of exp(x), within 2 %, then steps of fourth order (Fritsch, Shafer and
    Crowley): one step gives 1e-9, two give all digits of float64.

    >>> wright_omega(torch.tensor([-1.0, 1.0, 100.0]))
    tensor([ 0.2785,  1.0000, 95.4415])
    """
    plus = torch.nn.functional.softplus(x, threshold=50)
    omega = torch.log1p(plus).div_(plus + 2).neg_().add_(1).mul_(plus)
    for _ in range(1 if x.dtype == torch.float32 else 2):
        rest = (x - omega).sub_(torch.log(omega))
        above = omega + 1
        twice = (rest * (2 / 3)).add_(above).mul_(above).mul_(2)
        omega = (twice - rest).mul_(rest).div_(above).div_(twice.sub_(rest, alpha=2)).add_(1).mul_(omega)
    return omega


def _solve(z: Tensor, weights: Weights, _: float) -> Tensor:
    l2, entropy = weights
    ratio = l2 / entropy
    rounding = torch.finfo(z.dtype).eps / (4 * z.shape[-1])

    def closed() -> Tensor:
        """omega(x) as in ``_solve_open`` with q = 1; exp(x), equal to rounding, for all labels but one."""
        least = least_exponent(z.dtype)
        x = (ratio + torch.log(ratio) - z / entropy).clamp_(min=least)
        return (x - least).sign_().mul_(x.exp_().minimum(ratio))

    margin = entropy * (ratio + torch.log(ratio.clamp(min=1) / rounding))
    return solve_undecided(z, weights, margin, _solve_open, closed)


def _solve_open(z: Tensor, weights: Weights) -> Tensor:
    """The oracle with the largest entry q as unknown: sum p - 1 is convex, and linear if a weight is 0."""
    l2, entropy = weights
    least = least_exponent(z.dtype)
    scaled = z / entropy
    ratio = l2 / entropy

    def rows(q: Tensor) -> tuple[Tensor, Tensor]:
        """x and omega(x) = p * ratio, with x such that p = q for z = 0."""
        largest = ratio * q
        x = (largest + torch.log(largest) - scaled).clamp_(min=least)
        return x, wright_omega(x)

    def evaluate(q: Tensor) -> tuple[Tensor, Tensor]:
        omega = rows(q)[1]
        largest = ratio * q
        value = omega.sum(-1, keepdim=True) / ratio - 1
        slope = (omega / (omega + 1)).sum(-1, keepdim=True) * ((1 + largest) / largest)
        return value, q - value / slope

    # p >= q exp(-z / entropy), so q is at most the largest entry of softmax(-z / entropy).
    high = 1 / exp(-scaled).sum(-1, keepdim=True)
    low = torch.full_like(high, 1 / z.shape[-1])
    q = increasing_root(evaluate, low, high, tolerance=torch.finfo(z.dtype).eps ** 0.6)
    x, omega = rows(q)
    return torch.where(x > least, omega, 0.0)


def _inverse_hessian(p: Tensor, weights: Weights, _: float) -> InverseHessian:
    l2, entropy = weights
    return InverseHessian(p / (l2 * p + entropy))


def _gradients(p: Tensor, weights: Weights, _: float) -> Weights:
    return p, torch.log(torch.where(p > 0, p, 1.0))


_argmin = implicit("mixed", _solve, _inverse_hessian, _gradients)
