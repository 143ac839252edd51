"""Regularizers whose oracle has a closed form: vertex, softmax, projection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.regularizers.regularizer import (
    SumOverNodes,
    Weight,
    check_weight,
    extremes,
    like,
    over_nodes,
    scaled,
    smallest,
)
from fwcrf.torch_ops.precision import widest
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import project_onto_simplex, softmax


@dataclass(frozen=True)
class Simplex(SumOverNodes):
    """r = 0: the oracle is a vertex, as in vanilla Frank-Wolfe.

    >>> Simplex().argmin(torch.tensor([[3.0, 1.0, 2.0]]))
    tensor([[0., 1., 0.]])
    """

    @property
    def strong_convexity(self) -> float:
        return 0.0

    @property
    def quadratic(self) -> bool:
        return True

    def argmin(self, c: Tensor) -> Tensor:
        labels = torch.arange(c.shape[-1], device=c.device)
        return (labels == c.argmin(-1, keepdim=True)).to(c.dtype)

    def per_node(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-1], dtype=widest(x.device))

    def grad(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        return 0.0, 0.0

    def curvature(self, d: Tensor) -> Tensor:
        return d.new_zeros(d.shape[:-2], dtype=widest(d.device))


@dataclass(frozen=True)
class Entropy(SumOverNodes):
    """r(x) = weight * sum x log x: the oracle is softmax(-c / weight).

    On a simplex the strong convexity is 2 * weight: a direction d in it sums to zero, so that
    sum d^2 / x >= |d|_1^2 >= 2 |d|_2^2.

    >>> Entropy(0.5).argmin(torch.tensor([[0.0, 1.0]]))
    tensor([[0.8808, 0.1192]])
    """

    weight: Weight = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_weight(self.weight, "Entropy's weight")

    @property
    def strong_convexity(self) -> float | Tensor:
        return 2 * smallest(self.weight)

    def argmin(self, c: Tensor) -> Tensor:
        return softmax(*scaled(c, self.weight))

    def per_node(self, x: Tensor) -> Tensor:
        return over_nodes(self.weight) * torch.special.xlogy(x, x).sum(-1, dtype=widest(x.device))

    def grad(self, x: Tensor) -> Tensor:
        return like(self.weight, x) * (torch.log(x) + 1)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        return -extremes(self.weight)[1] * math.log(num_labels), 0.0


@dataclass(frozen=True)
class SquaredL2(SumOverNodes):
    """r(x) = weight / 2 |x|^2: the oracle projects -c / weight onto the simplex.

    >>> SquaredL2(2.0).argmin(torch.tensor([[0.0, 1.0, 5.0]]))
    tensor([[0.7500, 0.2500, 0.0000]])
    """

    weight: Weight = 1.0

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_weight(self.weight, "SquaredL2's weight")

    @property
    def quadratic(self) -> bool:
        return True

    @property
    def strong_convexity(self) -> float | Tensor:
        return smallest(self.weight)

    def argmin(self, c: Tensor) -> Tensor:
        return project_onto_simplex(*scaled(c, self.weight))

    def per_node(self, x: Tensor) -> Tensor:
        return 0.5 * over_nodes(self.weight) * x.square().sum(-1, dtype=widest(x.device))

    def grad(self, x: Tensor) -> Tensor:
        return like(self.weight, x) * x

    def bounds(self, num_labels: int) -> tuple[float, float]:
        low, high = extremes(self.weight)
        return low / (2 * num_labels), high / 2

    def curvature(self, d: Tensor) -> Tensor:
        return 2 * self.value(d)
