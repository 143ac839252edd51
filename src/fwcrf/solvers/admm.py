"""The alternating direction method of multipliers on E(x, z) = <x, P z> / 2 + <u, x> with x = z.

Each half-step applies P once and leaves a feasible point, and counts as a step::

    k even:  x <- argmin_x <y + P z / 2 + u, x> + rho B(x, z)
    k odd:   z <- argmin_z <P x / 2 - y, z> + rho B(z, x),   y <- y + rho (x - z)

B is the Bregman divergence of a mirror map: half the squared distance (a projection), or for the entropy the
Kullback-Leibler divergence (a softmax).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.energy import Energy
from fwcrf.inputs.numbers import reals, shown
from fwcrf.regularizers import Regularizer, SquaredL2
from fwcrf.torch_ops.magnitudes import LAMBDA
from fwcrf.torch_ops.printed import in_one_line


class State(NamedTuple):
    """``x`` is the newer of the two copies x and z, ``other`` the older one."""

    x: Tensor
    other: Tensor
    y: Tensor  # multipliers of x = z

    __repr__ = in_one_line


@dataclass(frozen=True)
class ADMM:
    """``rho`` weighs the distance between the two copies, ``mirror`` measures it."""

    rho: float | Tensor = 1.0
    mirror: Regularizer = field(default_factory=SquaredL2)

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        rho = reals(self.rho, "rho", torch.float64)
        least, most = LAMBDA
        if not rho.numel() or not bool(((rho >= least) & (rho <= most)).all()):
            raise ValueError(
                f"rho={shown(self.rho)}; expected a positive number, from {least:g} to {most:g}."
            )

    def init(self, f: Energy, x0: Tensor) -> State:
        return State(x0, x0, torch.zeros_like(x0))

    def step(self, f: Energy, state: State, k: int) -> State:
        half = 0.5 * f.pairwise(state.x)
        if k % 2 == 0:
            x = self._prox(half + state.y, state.x, f.unary)
            return State(x, state.x, state.y)
        # The unary is in the other half-step; here it only marks the forbidden labels.
        barrier = torch.where(f.unary == torch.inf, torch.inf, 0.0).to(half.dtype)
        z = self._prox(half - state.y, state.x, barrier)
        return State(z, state.x, state.y + self.rho * (state.x - z))

    def _prox(self, c: Tensor, near: Tensor, unary: Tensor) -> Tensor:
        """argmin_p <c + unary, p> + rho B(p, near)."""
        near = near.clamp(min=torch.finfo(near.dtype).tiny)  # the entropy takes its logarithm
        forbidden = unary == torch.inf
        cost = (c + unary.masked_fill(forbidden, 0.0)) / self.rho - self.mirror.grad(near)
        return self.mirror.argmin(cost.masked_fill(forbidden, torch.inf))
