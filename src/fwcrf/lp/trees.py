"""Settings of solvers of the dual of the linear relaxation over trees: ``lp-trws`` and ``lp-bundle``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fwcrf.energy import Energy
from fwcrf.inputs.numbers import whole


@dataclass(frozen=True)
class SequentialTrees:
    """TRW-S (Kolmogorov 2006) over the monotonic chains of the nodes' order, in native code.

    A step is a forward and a backward pass. The bound never falls. On a chain in the order of its nodes one
    step reaches the optimum; on other graphs the bound tends to a weak agreement of the chains, which for
    two labels is the optimum of the linear program and for more labels mostly close to it. The run ends
    early if the labels attain the bound, or if ten steps raise the bound by less than ``tolerance`` times
    the energy's size.
    """

    tolerance: float = 1e-9

    graphs_only = True

    def __post_init__(self) -> None:
        if not 0 <= self.tolerance < float("inf"):
            raise ValueError(f"tolerance={self.tolerance!r}; expected a number, 0 or more.")

    def init(self, f: Energy, x0: Tensor) -> Any:
        raise TypeError(
            "lp-trws works on sparse graphs; expected SparseMRF(...).solve('lp-trws'). For other energies "
            "see fwcrf.solvers.names()."
        )

    def step(self, f: Energy, state: Any, k: int) -> Any:
        return self.init(f, state)


@dataclass(frozen=True)
class ChainBundle(SequentialTrees):
    """A proximal bundle method over monotonic chains, after TRW-S.

    Every node has a copy in each of its chains, and copies share its unary: u_T for chain T. The sum of the
    chains' minima f_T(u_T) is a lower bound, whose largest value is the optimum of the linear program. From
    the shares that TRW-S ends with, a step maximises

        sum_T min over planes k of T (e_k + <u_T + l_T, y_k>) - |l|^2 / (2 c),  l in sum zero over copies,

    where the planes are labellings y_k of the chain with costs e_k of its edges. The dual of this problem is
    a quadratic program over weights of the planes, solved by block-coordinate Frank-Wolfe with pairwise
    steps. Dynamic programming over the chains at u + l, the linear oracle of the local polytope, adds a
    plane to each chain. The shares move to u + l if the bound rises by a tenth of what the planes promise.
    TRW-S takes up to ``passes`` steps before.
    """

    passes: int = 200
    planes: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.passes, "passes", 1, "1 or more")
        whole(self.planes, "planes", 2, "2 or more")
