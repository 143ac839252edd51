"""Half the squared p-norm of each node."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.regularizers.closed import SquaredL2
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
from fwcrf.torch_ops.precision import wide
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True)
class SquaredLp(SumOverNodes):
    """r(x) = weight / 2 * sum_i |x_i|_p^2, 1 < p <= 4.

    The oracle is v / sum v with v_s = max(tau - c_s, 0)^(1 / (p - 1)) and tau such that
    sum v * |v|_p^(p - 2) = weight. For p <= 2 the strong convexity is (p - 1) * weight in the p-norm, hence
    also in the smaller 2-norm. For p > 2 it is 0, because the curvature vanishes as x tends to 0; an error e
    in c, such as rounding, then changes p by up to e^(1 / (p - 1)).

    >>> SquaredLp(p=1.5).argmin(torch.tensor([[0.0, 0.2, 2.0]]))
    tensor([[0.6549, 0.3451, 0.0000]])
    """

    p: float = 1.5
    weight: Weight = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        if not 1 < self.p <= 4:
            raise ValueError(
                f"p={self.p!r}; expected a number above 1, up to 4. On a simplex the 1-norm is constant: use "
                "Simplex for p = 1. Above 4 the rounding of c alone would change the result."
            )
        check_weight(self.weight, "SquaredLp's weight")

    @property
    def quadratic(self) -> bool:
        return self.p == 2

    @property
    def strong_convexity(self) -> float | Tensor:
        return smallest(self.weight) * (self.p - 1 if self.p <= 2 else 0.0)

    def argmin(self, c: Tensor) -> Tensor:
        return SquaredL2(self.weight).argmin(c) if self.p == 2 else _argmin(c, self.p, self.weight)

    def per_node(self, x: Tensor) -> Tensor:
        return 0.5 * over_nodes(self.weight) * wide(_norm(x, self.p).squeeze(-1)).square()

    def grad(self, x: Tensor) -> Tensor:
        norm = _norm(x, self.p)
        return like(self.weight, x) * norm * (x / norm).pow(self.p - 1)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        low, high = extremes(self.weight)
        return low / 2 * num_labels ** (2 / self.p - 2), high / 2

    def curvature(self, d: Tensor) -> Tensor:
        return SquaredL2(self.weight).curvature(d) if self.quadratic else super().curvature(d)


def _norm(x: Tensor, p: float) -> Tensor:
    """|x|_p of non-zero rows, (*batch, n, 1), scaled by the largest entry to avoid underflow."""
    largest = x.detach().abs().amax(-1, keepdim=True)
    return largest * torch.linalg.vector_norm(x / largest, p, -1, keepdim=True)


def _solve(z: Tensor, weights: Weights, p: float) -> Tensor:
    return solve_undecided(z, weights, weights[0], lambda z, weights: _solve_open(z, weights, p))


def _solve_open(z: Tensor, weights: Weights, p: float) -> Tensor:
    """v divided by its largest entry, with y = tau / weight as unknown of the root.

    The function is homogeneous in (tau, z), so nearly linear, but convex only for p = 2.
    """
    (weight,) = weights
    e = 1 / (p - 1)
    scaled = z / weight
    nearly_one = 1 - torch.finfo(z.dtype).eps

    def relative(y: Tensor) -> tuple[Tensor, Tensor]:
        """-z / tau, and v divided by its largest entry."""
        minus = (scaled / -y).clamp_(min=-nearly_one)
        # sign is 0 off the support and 1 on it; a comparison and torch.where are much slower.
        return minus, exp(torch.log1p(minus).mul_(e)).mul_((minus + nearly_one).sign_())

    def evaluate(y: Tensor) -> tuple[Tensor, Tensor]:
        root, power = relative(y)
        root.add_(1)
        total = power.sum(-1, keepdim=True)
        higher = (power * root).sum(-1, keepdim=True)
        lower = power.div_(root).sum(-1, keepdim=True)
        function = y * total * higher.pow((1 - e) / (1 + e))
        elasticity = e * lower / total + (1 - e) * total / higher
        return function - 1, y - y * (function - 1) / (function * elasticity)

    high = z.new_ones(len(z), 1)
    low = high / z.shape[-1] ** (1 if p <= 2 else 2)
    y = increasing_root(evaluate, low, high, tolerance=torch.finfo(z.dtype).eps ** (0.6 if p <= 2 else 0.9))
    return relative(y)[1]


def _inverse_hessian(x: Tensor, weights: Weights, p: float) -> InverseHessian:
    """H^-1, H = weight (p - 1) |x|^(2-p) diag(x^(p-2)) + weight (2 - p) |x|^(2-2p) x^(p-1) x^(p-1)'."""
    (weight,) = weights
    least = torch.finfo(x.dtype).eps if p > 2 else 0.0
    support = x > least
    norm = _norm(x, p)
    relative = torch.where(support, x / norm, 1.0)
    scale = 1 / (weight * (p - 1))
    inside = torch.where(support, relative, 0.0)
    return InverseHessian(torch.where(support, relative.pow(2 - p) * scale, 0.0), inside, (2 - p) * scale)


def _gradients(x: Tensor, weights: Weights, p: float) -> Weights:
    norm = _norm(x, p)
    relative = torch.where(x > 0, x / norm, 1.0)
    return (norm * relative.pow(p - 1),)


_argmin = implicit("squared_lp", _solve, _inverse_hessian, _gradients)
