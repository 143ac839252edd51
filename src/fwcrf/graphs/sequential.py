"""Frank-Wolfe on one node of a sparse graph after the other (Gauss-Seidel): the solvers ``seq-...``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.energy import Energy
from fwcrf.graphs.native import native_energy
from fwcrf.graphs.operator import SharedEdges, Sparse, TableEdges
from fwcrf.inputs.numbers import whole
from fwcrf.regularizers import Entropy
from fwcrf.regularizers.regularizer import check_weight
from fwcrf.stepsizes import Constant, Schedule, schedule
from fwcrf.torch_ops.adjacency import Adjacency
from fwcrf.torch_ops.native import differentiated, has_values
from fwcrf.torch_ops.printed import in_one_line


class Level(NamedTuple):
    """Nodes without edges among them. Their neighbours of smaller number are in earlier levels."""

    nodes: Tensor  # (k,)
    owner: Tensor  # of each end of an edge: the place in nodes
    neighbor: Tensor
    edge: Tensor
    second: Tensor  # True if the owner is the second node of the edge

    __repr__ = in_one_line


class State(NamedTuple):
    """x, the f and g of the step that led to it, and the graph in the forms of both paths."""

    x: Tensor
    f: Energy
    g: Entropy
    models: list[_core.GraphModel] | None  # None if the steps are differentiated
    levels: list[Level] | None
    scale: float | Tensor
    step: float | Tensor | None = None

    __repr__ = in_one_line


@dataclass(frozen=True)
class Sequential:
    """Entropic Frank-Wolfe on one node after the other. Step k visits the nodes i in order:

        p = softmax(-(P x + u)_i / w_k),  x_i <- x_i + a_k (p - x_i),

    with the present x of all neighbours. P has no blocks on its diagonal, so that E is linear in x_i and
    p is the exact minimum of E + w_k r over x_i: no step with a_k in [0, 1] raises E + w_k r, for any weight.
    ``weight`` is a number, or a function of k; ``relative`` weights are in units of the median over the edges
    of the largest minus the least cost, which has no gradient.
    """

    weight: float | Tensor | Callable[[int], float] = 1.0
    stepsize: Schedule = Constant(1.0)  # noqa: RUF009 - frozen
    relative: bool = False

    graphs_only = True
    __repr__ = in_one_line

    def __post_init__(self) -> None:
        if not callable(self.weight):
            check_weight(self.weight, "weight")

    def init(self, f: Energy, x0: Tensor) -> State:
        P = getattr(f.pairwise, "operator", f.pairwise)  # a trace counts the applications of P
        if not isinstance(P, Sparse):
            raise TypeError(
                "sequential solvers visit the nodes of a sparse graph; expected "
                "SparseMRF(...).solve('seq-mf'). For other energies see fwcrf.solvers.names()."
            )
        tensors = (x0, f.unary, *_tensors(P), self.weight, self.stepsize.at(0))
        torch_only = differentiated(*(t for t in tensors if isinstance(t, Tensor))) or not has_values(f.unary)
        models = None if torch_only and not self.relative else native_energy(f.unary.detach(), P)
        scale: float | Tensor = 1.0
        if self.relative:
            assert models is not None
            costs = [m.typical_cost() for m in models]
            found = torch.tensor(costs, dtype=torch.float64, device="cpu").to(f.unary)
            scale = found.view(*f.unary.shape[:-2], 1, 1)
        levels = wavefronts(P.graph) if torch_only else None
        return State(x0, f, Entropy(self._weight(0)), None if torch_only else models, levels, scale)

    def step(self, f: Energy, state: State, k: int) -> State:
        weight, a = self._weight(k), self.stepsize.at(k)
        x = self._in_torch(f, state, weight, a) if state.models is None else self._native(state, weight, a)
        return state._replace(x=x, g=Entropy(weight), step=a)

    def _weight(self, k: int) -> float | Tensor:
        return self.weight(k) if callable(self.weight) else self.weight

    def _native(self, state: State, weight: float | Tensor, a: float | Tensor) -> Tensor:
        assert state.models is not None
        x = state.x.detach().to(device="cpu", dtype=torch.float64).clone()
        scales = (
            state.scale.flatten().tolist() if isinstance(state.scale, Tensor) else [1.0] * len(state.models)
        )
        step = torch.tensor([float(a)], dtype=torch.float64, device="cpu")
        for model, own, scale in zip(state.models, x.view(-1, *x.shape[-2:]), scales, strict=True):
            model.sweep(step.new_tensor([float(weight) * scale]), step, 1e9, own)
        return x.to(state.x)

    def _in_torch(self, f: Energy, state: State, weight: float | Tensor, a: float | Tensor) -> Tensor:
        P, x = getattr(f.pairwise, "operator", f.pairwise), state.x
        assert state.levels is not None and isinstance(P, Sparse)
        for level in state.levels:
            grad = f.unary[..., level.nodes, :] + _rows(P, level, x)
            p = torch.softmax(-grad / (weight * state.scale), -1)
            old = x[..., level.nodes, :]
            x = x.index_copy(-2, level.nodes, old + a * (p - old))
        return x


@dataclass(frozen=True)
class Falling:
    """Weights from ``start`` at step 0 to ``end`` at step ``steps - 1``, linear, and ``end`` after that."""

    steps: int
    start: float
    end: float

    def __post_init__(self) -> None:
        whole(self.steps, "steps", 1, "1 or more")
        check_weight(self.start, "start")
        check_weight(self.end, "end")

    def __call__(self, k: int) -> float:
        part = min(k / (self.steps - 1), 1.0) if self.steps > 1 else 1.0
        return self.start + part * (self.end - self.start)


def wavefronts(graph: Adjacency) -> list[Level]:
    """The order of the nodes as few levels: those of a level have no edges among them."""
    slot, of = graph.slot.cpu(), torch.empty(graph.n, dtype=torch.int64, device="cpu")
    _core.levels(graph.first.cpu(), graph.neighbor.cpu(), of)
    device, degrees = graph.edges.device, graph.first.cpu().diff()
    owners = torch.repeat_interleave(torch.arange(graph.n, device="cpu"), degrees)
    levels = []
    place = torch.empty(graph.n, dtype=torch.int64, device="cpu")
    for nodes in torch.argsort(of, stable=True).split(torch.bincount(of).tolist()):
        place[nodes] = torch.arange(len(nodes), device="cpu")
        starts = graph.first.cpu()[nodes]
        count = degrees[nodes]
        ends = torch.repeat_interleave(starts - count.cumsum(0) + count, count) + torch.arange(
            int(count.sum()), device="cpu"
        )
        parts = (
            nodes,
            place[owners[ends]],
            graph.neighbor.cpu()[ends].long(),
            slot[ends].long() >> 1,
            slot[ends] % 2 == 1,
        )
        levels.append(Level(*(t.to(device) for t in parts)))
    return levels


def _tensors(P: Sparse) -> tuple[Tensor | None, ...]:
    return (
        (P.weight, P.matrix)
        if isinstance(P, SharedEdges)
        else (P.values,)
        if isinstance(P, TableEdges)
        else ()
    )


def _rows(P: Sparse, level: Level, x: Tensor) -> Tensor:
    """The rows of P x of a level's nodes, ``(*batch, k, L)``."""
    there = x[..., level.neighbor, :]
    none = x.new_zeros(*x.shape[:-2], len(level.nodes), x.shape[-1])
    if isinstance(P, TableEdges):
        tables = P.values[..., level.edge, :, :].to(x)
        tables = torch.where(level.second[:, None, None], tables.mT, tables)
        return none.index_add(-2, level.owner, (tables @ there.unsqueeze(-1)).squeeze(-1))
    assert isinstance(P, SharedEdges)
    weight = P.weight.to(x).unsqueeze(-1)
    weight = weight if weight.shape[-2] == 1 else weight[..., level.edge, :]
    sent = weight * there
    M = P._matrix().to(x)
    if P.symmetric or P.matrix is None:
        return none.index_add(-2, level.owner, sent) @ M
    along, against = (sent.masked_fill(mask.unsqueeze(-1), 0.0) for mask in (level.second, ~level.second))
    return none.index_add(-2, level.owner, along) @ M.mT + none.index_add(-2, level.owner, against) @ M


NAMED: dict[str, Callable[..., Sequential]] = {
    "seq-mf": lambda step=1.0: Sequential(1.0, schedule(step)),
    "seq-efw": lambda weight=0.25, step=1.0: Sequential(weight, schedule(step)),
    "seq-anneal-fw": lambda steps=50, start=3.0, end=0.1: Sequential(
        Falling(steps, start, end), relative=True
    ),
}
