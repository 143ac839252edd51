"""g = r + indicator of the simplices: what a Frank-Wolfe step adds to its linear problem.

Each regularizer answers one question, the oracle argmin_p <c, p> + g(p), row by row; c + constant
gives the same answer. The pair (f, g) decides the algorithm: see ``solvers.named``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fwcrf.simplex import project_onto_simplex, softmax


class Regularizer(Protocol):
    """A convex g over a product of simplices."""

    def argmin(self, c: Tensor) -> Tensor:  # (*batch, n, L)
        """argmin_p <c, p> + g(p) over the simplex of each row."""
        ...

    def value(self, x: Tensor) -> Tensor:
        """g(x) per image for feasible x, ``(*batch,)`` in float64."""
        ...

    @property
    def strong_convexity(self) -> float:
        """The largest sigma for which g - sigma/2 |x|^2 is convex on the simplices."""
        ...


def _check_weight(weight: float, name: str) -> None:
    if not weight > 0:
        raise ValueError(f"{name} has weight={weight!r}; expected a positive number (the paper's lambda).")


@dataclass(frozen=True)
class Simplex:
    """g = 0 on the simplices: the oracle is a vertex, and vanilla Frank-Wolfe follows."""

    strong_convexity = 0.0

    def argmin(self, c: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(c.argmin(-1), c.shape[-1]).to(c.dtype)

    def value(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-2], dtype=torch.float64)


@dataclass(frozen=True)
class Entropy:
    """g(x) = weight * sum x log x: the oracle is softmax(-c / weight)."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_weight(self.weight, "Entropy")

    @property
    def strong_convexity(self) -> float:
        return self.weight

    def argmin(self, c: Tensor) -> Tensor:
        return softmax(c, -1 / self.weight)

    def value(self, x: Tensor) -> Tensor:
        return self.weight * torch.special.xlogy(x, x).sum((-2, -1), dtype=torch.float64)


@dataclass(frozen=True)
class SquaredL2:
    """g(x) = weight / 2 |x|^2: the oracle projects -c / weight onto the simplex."""

    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_weight(self.weight, "SquaredL2")

    @property
    def strong_convexity(self) -> float:
        return self.weight

    def argmin(self, c: Tensor) -> Tensor:
        return project_onto_simplex(c, -1 / self.weight)

    def value(self, x: Tensor) -> Tensor:
        return 0.5 * self.weight * x.square().sum((-2, -1), dtype=torch.float64)
