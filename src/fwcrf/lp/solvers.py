"""Solvers of the linear relaxation: Frank-Wolfe over simplices with a penalty, or over the local polytope."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fwcrf.energy import Energy, Objective, linear
from fwcrf.lp.appearance import appearance_probabilities
from fwcrf.lp.entropy import ForestEntropy, FreeEnergy
from fwcrf.lp.polytope import LocalPolytope
from fwcrf.lp.relaxation import Consistency, Relaxation
from fwcrf.regularizers import Regularizer, Simplex
from fwcrf.regularizers.regularizer import check_weight
from fwcrf.solvers.frank_wolfe import FrankWolfe
from fwcrf.solvers.solver import Iterate
from fwcrf.stepsizes import SegmentSearch, Stepsize, least_of_parabola
from fwcrf.torch_ops.native import as_tensor
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import softmax

# Passes of TRW-S for a bound, which is computed once.
_PASSES = 200


class LinearSolver(ABC):
    """A solver of ``fwcrf.minimize`` for a ``Relaxation``."""

    graphs_only = True

    @abstractmethod
    def init(self, f: Energy, x0: Tensor) -> Iterate: ...

    @abstractmethod
    def step(self, f: Energy, state: Iterate, k: int) -> Iterate: ...

    @abstractmethod
    def start(self, E: Relaxation) -> Tensor:
        """A point of the local polytope to start from."""

    @abstractmethod
    def bound(self, E: Relaxation, x: Tensor) -> Tensor:
        """A lower bound on every labelling's energy, ``(*batch,)``, from the last iterate x."""

    def log_partition_bound(self, E: Relaxation, x: Tensor) -> Tensor | None:
        """An upper bound on log sum exp(-E) over all labellings. None if none is known."""
        return None


@dataclass(frozen=True)
class LocalConsistency(LinearSolver):
    """min E_LP(x) + weight/2 |A x|^2 over the simplices of all rows, by block-coordinate Frank-Wolfe.

    For fixed nodes, the rows of edges are independent; for fixed edges, so are the rows of nodes. A step
    moves every edge towards the vertex of least <gradient, p>, with an exact line search per edge, and then
    every node likewise. The messages weight A x give a lower bound on the linear program after any step.
    """

    weight: float = 10.0

    def __post_init__(self) -> None:
        check_weight(self.weight, "weight")

    def init(self, f: Energy, x0: Tensor) -> Iterate:
        E = _relaxation(f)
        return Iterate(x0, Energy(Consistency(E, self.weight), E.unary), Simplex())

    def step(self, f: Energy, state: Iterate, k: int) -> Iterate:
        E = _relaxation(f)
        theta, nodes, pairs = E.unary, E.nodes(state.x), E.pairs(state.x)

        y = self.weight * E.disagreement(state.x)
        grad = E.pairs(theta) + y[..., 0, :, None] + y[..., 1, None, :]
        d = Simplex().argmin(grad.flatten(-2)).unflatten(-1, grad.shape[-2:]) - pairs
        sums = torch.stack([d.sum(-1), d.sum(-2)], -2)
        curvature = self.weight * sums.square().sum((-2, -1))
        a = least_of_parabola(_slope(grad.flatten(-2), d.flatten(-2)), curvature)
        pairs = torch.lerp(pairs, pairs + d, a[..., None, None])
        y = y + self.weight * a[..., None, None] * sums

        grad = E.nodes(theta) - E.gathered(y)
        d = Simplex().argmin(grad) - nodes
        curvature = self.weight * E.degrees * d.square().sum(-1)
        a = least_of_parabola(_slope(grad, d), curvature)
        nodes = torch.lerp(nodes, nodes + d, a[..., None])
        return Iterate(E.join(nodes, pairs), state.f, state.g)

    def start(self, E: Relaxation) -> Tensor:
        return E.independent(softmax(E.nodes(E.unary), -1.0))

    def bound(self, E: Relaxation, x: Tensor) -> Tensor:
        return E.bound(E.unary, self.weight * E.disagreement(x))


@dataclass(frozen=True)
class EntropicRelaxation(LinearSolver):
    """min E_LP(x) - weight H(x) over the local polytope by Frank-Wolfe, H as in ``FreeEnergy``.

    ``rho`` is a number, one per edge, or None for the appearance probabilities in random spanning trees.
    ``oracle`` is that of ``LocalPolytope``. With messages, Frank-Wolfe mixes labellings that cost little more
    than the best vertex, and TRW-S gives the bounds.
    """

    weight: float = 1.0
    rho: float | Tensor | None = None
    eta: float = 0.0
    stepsize: Stepsize = field(default_factory=SegmentSearch)
    oracle: str | None = None

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_weight(self.weight, "weight")
        if self.oracle not in (None, "program", "messages"):
            raise ValueError(
                f"oracle={self.oracle!r}; expected 'program', 'messages', or None to choose by the size."
            )
        if not 0 <= self.eta < 1:
            raise ValueError(f"eta={self.eta!r}; expected a number from 0 to 1, such as 0.01.")
        if self.rho is not None:
            rho = as_tensor(self.rho)
            if rho.dim() > 1 or not bool(((rho > 0) & (rho < torch.inf)).all()):
                raise ValueError(
                    f"rho={self.rho!r}; expected a positive number, one per edge, or None for random "
                    "spanning trees."
                )

    def init(self, f: Energy, x0: Tensor) -> Iterate:
        return self._frank_wolfe.init(f, x0)

    def step(self, f: Energy, state: Iterate, k: int) -> Iterate:
        return self._frank_wolfe.step(f, state, k)

    def start(self, E: Relaxation) -> Tensor:
        return E.uniform()

    def bound(self, E: Relaxation, x: Tensor) -> Tensor:
        return self._bounding(E).solve(E.unary).least

    def log_partition_bound(self, E: Relaxation, x: Tensor) -> Tensor | None:
        """S(x) - f(x) for rho of spanning trees: log Z <= max -f, and by convexity min f >= f(x) - S(x)."""
        if self.rho is not None or self.eta > 0 or self.weight != 1:
            return None
        f = FreeEnergy(E, self.weight, self._rho(E))
        grad = f.grad(x)
        return linear(grad, x) - self._bounding(E).solve(grad).least - f.value(x)

    def polytope(self, E: Relaxation) -> LocalPolytope:
        """The feasible set of a step."""
        return LocalPolytope(E, self.oracle)

    def _bounding(self, E: Relaxation) -> LocalPolytope:
        return LocalPolytope(E, self.oracle, passes=_PASSES)

    def split(self, E: Energy, r: Regularizer) -> tuple[Objective, Regularizer]:
        """(f, g): the free energy and the local polytope, or for Bethe on forests E and the entropy."""
        E = _relaxation(E)
        f, g = FreeEnergy(E, self.weight, self._rho(E), self.eta), self.polytope(E)
        if self.eta == 0 and g.is_forest and bool((f.rho == 1).all()):
            return E, ForestEntropy(g, self.weight)
        return f, g

    @property
    def _frank_wolfe(self) -> FrankWolfe:
        return FrankWolfe(Simplex(), self.stepsize, self.split)

    def _rho(self, E: Relaxation) -> Tensor:
        m = len(E.edges)
        if self.rho is None:
            return appearance_probabilities(E.num_nodes, E.edges)
        rho = torch.as_tensor(self.rho, dtype=torch.float64, device=E.unary.device)
        if rho.dim() and len(rho) != m:
            raise ValueError(f"rho has {len(rho)} entries for {m} edges; expected one each, or a number.")
        return rho.expand(m)


def _relaxation(E: Energy) -> Relaxation:
    if not isinstance(E, Relaxation):
        raise TypeError(
            "this solver works on the linear relaxation of a sparse graph; expected "
            "SparseMRF(...).solve('lp-...'). For other energies see fwcrf.solvers.names()."
        )
    return E


def _slope(grad: Tensor, d: Tensor) -> Tensor:
    """<grad, d> of each row, with inf * 0 = 0."""
    return torch.where(d == 0, 0.0, grad * d).sum(-1)
