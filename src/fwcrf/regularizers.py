"""g = r + indicator of the simplices: what a Frank-Wolfe step adds to its linear problem.

Each regularizer answers one question, the oracle argmin_p <c, p> + g(p), row by row; c + constant
gives the same answer. The pair (f, g) decides the algorithm: see ``solvers.named``.

A weight is a number, a learnable scalar, or one number per node, ``(*batch or 1, n or 1, 1)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fwcrf.kernels.operator import has_values
from fwcrf.simplex import project_onto_simplex, softmax

Weight = float | Tensor


class Regularizer(Protocol):
    """A convex g over a product of simplices."""

    @property
    def quadratic(self) -> bool:
        """Whether r is quadratic, so that a line search has a closed form through ``curvature``."""
        ...

    def argmin(self, c: Tensor) -> Tensor:  # (*batch, n, L)
        """argmin_p <c, p> + g(p) over the simplex of each row; 0 where c is +inf."""
        ...

    def value(self, x: Tensor) -> Tensor:
        """g(x) per image for feasible x, ``(*batch,)`` in float64."""
        ...

    def grad(self, x: Tensor) -> Tensor:
        """The gradient of r at x."""
        ...

    def curvature(self, d: Tensor) -> Tensor:
        """<d, Hessian of r d> per image, of a quadratic r."""
        ...

    @property
    def strong_convexity(self) -> Weight:
        """The largest known sigma for which g - sigma/2 |x|^2 is convex on the simplices."""
        ...

    def bounds(self, num_labels: int) -> tuple[float, float]:
        """(m, M) with m <= r <= M on the simplex of one node."""
        ...


def _check_weight(weight: Weight, name: str) -> None:
    if isinstance(weight, Tensor):
        if not has_values(weight) or bool((weight > 0).all()):
            return
        weight = float(weight.detach().amin())
    if not weight > 0:
        raise ValueError(f"{name} has weight={weight!r}; expected a positive number (the paper's lambda).")


def _least(weight: Weight) -> Weight:
    return weight.amin((-2, -1)) if isinstance(weight, Tensor) and weight.dim() else weight


def _largest(weight: Weight) -> float:
    return float(weight.detach().amax()) if isinstance(weight, Tensor) else weight


def _row_map(function: Callable[..., Tensor], c: Tensor, weight: Weight) -> Tensor:
    """function(-c / weight), in one pass where the weight is a number."""
    return function(_over(c, weight)) if isinstance(weight, Tensor) else function(c, -1 / weight)


def _over(c: Tensor, weight: Weight) -> Tensor:
    """-c / weight, -inf where c is infinite: without 0 times infinity in the derivative by the weight."""
    if not isinstance(weight, Tensor):
        return c * (-1 / weight)
    forbidden = c == torch.inf
    return (c.masked_fill(forbidden, 0.0) / -weight.to(c)).masked_fill(forbidden, -torch.inf)


def _sum(values: Tensor) -> Tensor:
    return values.sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True)
class Simplex:
    """g = 0 on the simplices: the oracle is a vertex, and vanilla Frank-Wolfe follows."""

    strong_convexity = 0.0
    quadratic = True

    def argmin(self, c: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(c.argmin(-1), c.shape[-1]).to(c.dtype)

    def value(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-2], dtype=torch.float64)

    def grad(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def curvature(self, d: Tensor) -> Tensor:
        return self.value(d)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        return 0.0, 0.0


@dataclass(frozen=True)
class Entropy:
    """g(x) = weight * sum x log x: the oracle is softmax(-c / weight)."""

    weight: Weight = 1.0
    quadratic = False

    def __post_init__(self) -> None:
        _check_weight(self.weight, "Entropy")

    @property
    def strong_convexity(self) -> Weight:
        return _least(self.weight)

    def argmin(self, c: Tensor) -> Tensor:
        return _row_map(softmax, c, self.weight)

    def value(self, x: Tensor) -> Tensor:
        return _sum(self.weight * torch.special.xlogy(x, x))

    def grad(self, x: Tensor) -> Tensor:
        return self.weight * (x.log() + 1)

    def curvature(self, d: Tensor) -> Tensor:
        raise TypeError("Entropy is not quadratic; its curvature depends on the point.")

    def bounds(self, num_labels: int) -> tuple[float, float]:
        return -_largest(self.weight) * math.log(num_labels), 0.0


@dataclass(frozen=True)
class SquaredL2:
    """g(x) = weight / 2 |x|^2: the oracle projects -c / weight onto the simplex."""

    weight: Weight = 1.0
    quadratic = True

    def __post_init__(self) -> None:
        _check_weight(self.weight, "SquaredL2")

    @property
    def strong_convexity(self) -> Weight:
        return _least(self.weight)

    def argmin(self, c: Tensor) -> Tensor:
        return _row_map(project_onto_simplex, c, self.weight)

    def value(self, x: Tensor) -> Tensor:
        return 0.5 * self.curvature(x)

    def grad(self, x: Tensor) -> Tensor:
        return self.weight * x

    def curvature(self, d: Tensor) -> Tensor:
        return _sum(self.weight * d.square())

    def bounds(self, num_labels: int) -> tuple[float, float]:
        w = _largest(self.weight)
        return 0.5 * w / num_labels, 0.5 * w


@dataclass(frozen=True)
class Mixed:
    """g(x) = l2 / 2 |x|^2 + entropy * sum x log x."""

    l2: Weight = 1.0
    entropy: Weight = 1.0
    quadratic = False

    def __post_init__(self) -> None:
        _check_weight(self.l2, "Mixed")
        _check_weight(self.entropy, "Mixed")

    @property
    def strong_convexity(self) -> Weight:
        return _least(self.l2) + _least(self.entropy)

    def argmin(self, c: Tensor) -> Tensor:
        l2, entropy = (torch.as_tensor(w).to(c) for w in (self.l2, self.entropy))
        with torch.no_grad():
            p = _solve_mixed(_over(c, entropy), l2 / entropy)
        # One Newton step on the conditions l2 p + entropy log p + c = constant: 0 but for its derivative.
        inside = p > 0
        safe = p.clamp(min=torch.finfo(p.dtype).tiny)
        residual = c.masked_fill(~inside, 0.0) + l2 * p + entropy * safe.log()
        slope = torch.where(inside, 1 / (l2 + entropy / safe), 0.0).detach()
        mean = (slope * residual).sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return p - slope * (residual - mean)

    def value(self, x: Tensor) -> Tensor:
        return _sum(0.5 * self.l2 * x.square() + self.entropy * torch.special.xlogy(x, x))

    def grad(self, x: Tensor) -> Tensor:
        return self.l2 * x + self.entropy * (x.log() + 1)

    def curvature(self, d: Tensor) -> Tensor:
        raise TypeError("Mixed is not quadratic; its curvature depends on the point.")

    def bounds(self, num_labels: int) -> tuple[float, float]:
        l2, entropy = _largest(self.l2), _largest(self.entropy)
        return 0.5 * l2 / num_labels - entropy * math.log(num_labels), 0.5 * l2


def _solve_mixed(v: Tensor, ratio: Tensor) -> Tensor:
    """p with ratio p + log p = v - t, summing to 1 in every row: bisection over t."""
    v = v - v.amax(-1, keepdim=True)
    zero = torch.zeros_like(v[..., :1])
    low, high = zero - ratio - 1, zero + math.log(v.shape[-1])
    for _ in range(30 if v.dtype == torch.float32 else 60):
        middle = 0.5 * (low + high)
        enough = _log_equation(v - middle, ratio).sum(-1, keepdim=True) > 1
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    p = _log_equation(v - high, ratio)
    return p / p.sum(-1, keepdim=True)


def _log_equation(w: Tensor, ratio: Tensor) -> Tensor:
    """p with ratio p + log p = w, by Newton on log p."""
    y = torch.where(w > 0, (1 + w.clamp(min=0) / ratio).log().minimum(w), w)
    for _ in range(8):
        step = (ratio * y.exp() + y - w) / (ratio * y.exp() + 1)
        y = torch.where(torch.isfinite(y), y - step, y)
    return y.exp()


@dataclass(frozen=True)
class BlockQuadratic:
    """g(x) = sum_i weight_i / 2 <x_i, matrix x_i> + entropy * sum x log x; the matrix has no eigenvalue < 0.

    The oracle is a proximal gradient iteration.
    """

    matrix: Tensor
    weight: Weight
    entropy: Weight = 0.0

    @property
    def quadratic(self) -> bool:
        return not isinstance(self.entropy, Tensor) and self.entropy == 0

    @property
    def strong_convexity(self) -> Weight:
        return _least(self.entropy)

    def argmin(self, c: Tensor) -> Tensor:
        return self._projecting(c) if self.quadratic else self._mirroring(c)

    def _projecting(self, c: Tensor) -> Tensor:
        l2 = self.weight * torch.linalg.eigvalsh(self.matrix.detach())[-1].to(c)
        p = y = SquaredL2(l2).argmin(c)
        t = 1.0
        for _ in range(100):
            last, p = p, SquaredL2(l2).argmin(c + self._times(y) - l2 * y)
            t, before = 0.5 * (1 + math.sqrt(1 + 4 * t * t)), t
            y = p + (before - 1) / t * (p - last)
        return p

    def _mirroring(self, c: Tensor) -> Tensor:
        # The quadratic form is smooth relative to the entropy: a linear rate.
        l1 = self.weight * self.matrix.detach().abs().amax().to(c)
        log_p = torch.log_softmax(_over(c, torch.as_tensor(self.entropy).to(c)), -1)
        forbidden = c == torch.inf
        for _ in range(60):
            p = log_p.exp()
            cost = c.masked_fill(forbidden, 0.0) + self._times(p) - l1 * log_p.masked_fill(forbidden, 0.0)
            log_p = torch.log_softmax((-cost / (l1 + self.entropy)).masked_fill(forbidden, -torch.inf), -1)
        return log_p.exp()

    def _times(self, x: Tensor) -> Tensor:
        return self.weight * (x @ self.matrix.to(x))

    def value(self, x: Tensor) -> Tensor:
        return _sum(0.5 * x * self._times(x) + self.entropy * torch.special.xlogy(x, x))

    def grad(self, x: Tensor) -> Tensor:
        linear = self._times(x)
        return linear if self.quadratic else linear + self.entropy * (x.log() + 1)

    def curvature(self, d: Tensor) -> Tensor:
        return _sum(d * self._times(d))

    def bounds(self, num_labels: int) -> tuple[float, float]:
        w, e = _largest(self.weight), _largest(self.entropy)
        return -e * math.log(num_labels), 0.5 * w * float(torch.linalg.eigvalsh(self.matrix)[-1])


def block_quadratic(
    matrix: Tensor, weight: Weight, linear: Tensor | None = None, entropy: Weight = 0.0
) -> BlockQuadratic:
    """sum_i weight_i / 2 <x_i, matrix x_i> + entropy * sum x log x as a regularizer."""
    assert linear is None
    return BlockQuadratic(matrix, weight, entropy)
