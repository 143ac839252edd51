"""From kernels and unary energies to labels: the part that images and point clouds share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf import pairwise, solvers
from fwcrf import rounding as roundings
from fwcrf.compatibility import Compatibility
from fwcrf.energy import Energy
from fwcrf.kernels.gaussians import Weight
from fwcrf.kernels.operator import Normalization, Operator
from fwcrf.rounding import Rounding, nearest
from fwcrf.solvers import Solver
from fwcrf.torch_ops.simplex import softmax


@dataclass(frozen=True)
class Inference:
    """Settings of a solver and of the model, apart from its kernels."""

    solver: str | Solver
    num_steps: int
    rounding: str | Rounding
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility]
    self_edges: bool

    def __post_init__(self) -> None:
        # What is wrong with them is said before the work.
        if isinstance(self.solver, str):
            solvers.get(self.solver)
        roundings.get(self.rounding)
        if isinstance(self.num_steps, bool) or int(self.num_steps) != self.num_steps or self.num_steps < 0:
            raise ValueError(f"num_steps={self.num_steps!r}; expected 0 (which changes nothing) or more.")

    def __call__(
        self,
        operators: Sequence[Operator],
        weights: Sequence[Weight],
        unary: Tensor,  # (*batch, n, L)
        ignore: Tensor | None = None,  # (*batch, n)
        finite: bool = False,  # whether the unary is known to be so
    ) -> tuple[Tensor | None, Tensor]:
        """Labels ``(*batch, n)`` and probabilities ``(*batch, n, L)``.

        No labels where they are those of the largest probabilities: who writes these finds them on the way.
        """
        P = pairwise.dense(
            operators,
            unary.shape[-1],
            weights=weights,
            compat=self.compatibility,
            self_edges=self.self_edges,
        )
        E = Energy(P, unary, checked=finite)
        found = solvers.minimize(E, self.solver, num_steps=self.num_steps, rounding=self.rounding)
        x = found.probabilities
        if ignore is None:
            return None if self.rounding == "nearest" else found.labels, x
        own = alone(unary)
        return torch.where(ignore, own[0], found.labels), torch.where(ignore.unsqueeze(-1), own[1], x)


def alone(unary: Tensor) -> tuple[Tensor, Tensor]:
    """Labels and probabilities of points without neighbours."""
    x = softmax(unary, -1.0)
    return nearest(x), x


def restricted(K: Operator, ignore: Tensor, normalization: Normalization | None) -> Operator:
    """An operator without the ignored points, ``(*batch, n)``, and then normalised unless None."""
    part = (~ignore).to(K.example.dtype)
    # A point without neighbours keeps 1 on the diagonal, so that its row can be divided by its sum.
    K = K.scaled(part).shifted(1 - part)
    return K if normalization is None else K.normalized(normalization)


def without(values: Tensor, ignore: Tensor) -> Tensor:
    """Values ``(*batch, n, channels)``, those to be ignored replaced by the mean of the others."""
    out = ignore.unsqueeze(-1)
    mean = values.masked_fill(out, 0.0).sum(-2, keepdim=True) / (~out).sum(-2, keepdim=True).clamp(min=1)
    return torch.where(out, mean, values)
