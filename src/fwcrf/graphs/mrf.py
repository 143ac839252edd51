"""Markov random fields on sparse graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fwcrf import rounding as roundings
from fwcrf import solvers
from fwcrf.energy import Energy
from fwcrf.graphs.forbidden import finite_matrix, finite_tables
from fwcrf.graphs.operator import SharedEdges, Sparse, TableEdges
from fwcrf.graphs.potentials import Full, Potential, Tables, potential, read_tables, read_weight
from fwcrf.graphs.search import PROOF, Progress
from fwcrf.inputs.numbers import whole
from fwcrf.lp.solvers import LinearSolver
from fwcrf.lp.trees import ChainBundle, SequentialTrees
from fwcrf.solvers.solution import Solution
from fwcrf.solvers.solver import Solver
from fwcrf.torch_ops.adjacency import Adjacency, adjacency
from fwcrf.torch_ops.magnitudes import WEIGHT, bounded, is_large, refuse_weight
from fwcrf.torch_ops.native import (
    as_int64,
    as_tensor,
    check_finite,
    has_values,
    kept_property,
    with_memory_errors,
)


@dataclass(frozen=True, eq=False)
class SparseMRF:
    """E(labels) = constant + sum_i unary_i(labels_i) + sum over edges (i, j) of T_ij(labels_i, labels_j).

    ``unary`` is ``(*batch, n, L)``, float32 or float64; +inf forbids a label, also for nodes with fewer
    labels; rows of very large numbers are stored as in ``Energy``. ``edges`` is ``(m, 2)``, common to the
    whole batch. Edges between the same nodes add up; an edge (j, i) equals an edge (i, j) with its table
    transposed. ``pairwise`` is a number or one per edge (Potts weights), a matrix ``(L, L)`` shared by all
    edges, a table per edge ``(m, L, L)``, or a potential of ``fwcrf.graphs``. A cost of +inf forbids a pair
    of labels: see ``energy``.

    >>> mrf = SparseMRF(torch.tensor([[0.0, 2.0], [0.5, 0.0], [3.0, 0.0]]), [[0, 1], [1, 2]], 1.0)
    >>> found = mrf.solve("mf")
    >>> found.labels, float(found.energy)
    (tensor([0, 1, 1]), 1.0)
    """

    unary: Tensor
    edges: Tensor
    pairwise: Potential
    constant: float = 0.0
    cardinalities: Tensor | None = None  # (n,): number of labels per node; None: L
    auxiliary: int = 0  # nodes at the end that are no variables of a file

    @with_memory_errors
    def __init__(
        self,
        unary: Any,
        edges: Any,
        pairwise: Any,
        *,
        constant: float = 0.0,
        cardinalities: Any = None,
        auxiliary: int = 0,
    ) -> None:
        u = as_tensor(unary)
        if u.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"unary is {u.dtype}; expected float32 or float64: unary.float(), for example.")
        if u.dim() < 2 or u.numel() == 0:
            raise ValueError(
                f"unary has shape {tuple(u.shape)}; expected (*batch, n, labels), none of them 0."
            )
        graph = adjacency(u.shape[-2], as_tensor(edges)).to(u.device)
        if has_values(u) and bool(is_large(u.detach()).any()):
            u = bounded(u)
        costs = potential(pairwise, len(graph.edges), u.shape[-1])
        given = _operator(costs, graph, u)
        _check_batch(given.batch_shape, u)
        if given.magnitude > WEIGHT:
            refuse_weight(given.magnitude)
        if not abs(constant) < float("inf"):
            raise ValueError(f"constant={constant!r}; expected a finite number.")
        sizes = None if cardinalities is None else _cardinalities(cardinalities, u)
        known = {
            "unary": u,
            "edges": graph.edges.long(),
            "pairwise": costs,
            "constant": float(constant),
            "cardinalities": sizes,
            "auxiliary": whole(auxiliary, "auxiliary", 0, f"0 to {u.shape[-2] - 1}"),
            "_given": given,
            "_energy": Energy(_finite(given, u), u),
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        kind = type(self.pairwise).__name__
        return f"SparseMRF({self.num_nodes} nodes, {self.num_edges} edges, {self.num_labels} labels, {kind})"

    @property
    def num_nodes(self) -> int:
        return self.unary.shape[-2]

    @property
    def num_labels(self) -> int:
        return self.unary.shape[-1]

    @property
    def num_edges(self) -> int:
        return len(self.edges)

    def energy(self) -> Energy:
        """E for the solvers, without the constant. ``pairwise`` is the graph's operator P.

        P has a large finite cost instead of +inf for a forbidden pair of labels (``graphs.forbidden``).
        """
        return self._energy  # type: ignore[attr-defined]

    @with_memory_errors
    def tables(self) -> Tensor:
        """The cost of each edge by the labels of its nodes, ``(*batch, m, L, L)``, finite as ``energy``'s."""
        return self.energy().pairwise.tables()  # type: ignore[attr-defined]

    @with_memory_errors
    def given_tables(self) -> Tensor:
        """``tables`` with +inf for forbidden pairs of labels."""
        return self._given.tables()  # type: ignore[attr-defined]

    @with_memory_errors
    @torch.no_grad()
    def value(self, labels: Tensor) -> Tensor:
        """E of labels ``(*batch, n)`` with the constant, ``(*batch,)`` in float64; +inf if forbidden."""
        labels = as_tensor(labels).to(self.unary.device)
        shape, L = self.unary.shape[:-1], self.num_labels
        if labels.dtype.is_floating_point or labels.dtype == torch.bool:
            raise TypeError(f"labels has dtype {labels.dtype}; expected integers.")
        labels = as_int64(labels)
        if labels.shape[-1:] != shape[-1:]:
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}; expected {tuple(shape)}: one label per node."
            )
        if labels.min() < 0 or labels.max() >= L:
            raise ValueError(f"labels run from {labels.min()} to {labels.max()}; expected 0 to {L - 1}.")
        labels = labels.expand(torch.broadcast_shapes(labels.shape, shape))
        unary = self.unary.expand(*labels.shape, L).gather(-1, labels.unsqueeze(-1))
        return unary.sum((-2, -1), dtype=torch.float64) + self._given.of_labels(labels) + self.constant  # type: ignore[attr-defined]

    @with_memory_errors
    def solve(
        self,
        solver: str | Solver | None = None,
        num_steps: int | None = None,
        rounding: str | roundings.Rounding | None = None,
        *,
        time_limit: float | None = None,
        progress: Callable[[Progress], None] | None = None,
        certify: bool = False,
        restarts: int | None = None,
        seed: int = 0,
        x0: Tensor | None = None,
        trace: bool = False,
        tol: float | None = None,
        callback: Callable[[int, Tensor], None] | None = None,
        **settings: Any,
    ) -> GraphSolution:
        """Labels of low energy, with a lower bound.

        Without a solver (or with ``"auto"``) the labels are optimal where an exact method is quick: a maximum
        flow for two labels and submodular costs, dynamic programming on forests, elimination on graphs of
        small treewidth. Otherwise TRW-S gives a bound and labels, and several moves improve the labels, for
        at most ``time_limit`` seconds (3), or until no move gains. ``bound`` and ``proven`` tell how good
        they are. ``progress`` is called with a ``fwcrf.graphs.Progress`` when a method finds better labels or
        a better bound. An interrupt (Ctrl-C) ends the search and returns the best labels so far. With
        ``certify``, for two labels, cycle cuts then raise the bound of unproven labels, for as long as it
        takes, or for ``time_limit`` seconds more.

        With a solver: ``num_steps`` steps (50), then ``rounding`` ("bcd"). ``settings`` are arguments of a
        solver given by name (``weight=``, ``step=``, ...). ``trace``, ``tol``, ``x0`` and ``callback`` are as
        in ``fwcrf.minimize``. With ``rounding="bcd"`` no change of one node's label lowers the energy; then
        ``restarts`` local searches start from randomly changed labels, reproducible by ``seed``. Any of these
        arguments without a solver means ``solver="l2fw"``. The solvers ``lp-...`` have a lower bound; all but
        ``lp-trws`` and ``lp-bundle`` return a ``fwcrf.graphs.LinearSolution``, with probabilities of edges.
        """
        from fwcrf.graphs import best, linear, trees  # these import this module

        stepwise = {
            "num_steps": num_steps, "rounding": rounding, "restarts": restarts, "x0": x0, "tol": tol,
            "callback": callback, "trace": trace or None, **settings,
        }  # fmt: skip
        given = [name for name, value in stepwise.items() if value is not None]
        if solver == "auto" or (solver is None and not given):
            if given:
                raise TypeError(f"{', '.join(given)} with solver='auto'; expected a solver with steps.")
            limit = 3.0 if time_limit is None else time_limit
            if not (isinstance(limit, float | int) and limit >= 0):
                raise ValueError(f"time_limit={time_limit!r}; expected a number of seconds, 0 or more.")
            if certify and self.num_labels != 2:
                raise ValueError(
                    f"certify=True with {self.num_labels} labels; expected a model with 2 labels."
                )
            cuts = (float("inf") if time_limit is None else float(limit)) if certify else 0.0
            return best.solve(self, time_limit=float(limit), seed=seed, progress=progress, certificate=cuts)
        if time_limit is not None or progress is not None or certify:
            name = (
                "time_limit" if time_limit is not None else "progress" if progress is not None else "certify"
            )
            raise TypeError(f"{name} with a solver of {num_steps or 50} steps; expected solver='auto'.")
        num_steps = 50 if num_steps is None else num_steps
        restarts = whole(0 if restarts is None else restarts, "restarts", 0, "0 or more")
        rounding = "bcd" if rounding is None else rounding
        if restarts and rounding != "bcd":
            raise ValueError(f"restarts={restarts} with rounding={rounding!r}; expected rounding='bcd'.")
        if isinstance(solver, str) or solver is None:
            solver = solvers.get(solver or "l2fw", **settings)
        elif settings:
            raise TypeError(f"{', '.join(settings)} with a solver object; pass settings to solvers.get(...).")
        round_ = (
            partial(roundings.bcd, restarts=int(restarts), seed=seed) if restarts else roundings.get(rounding)
        )
        if isinstance(solver, SequentialTrees):
            unused = [name for name in ("x0", "tol", "callback", "trace") if stepwise[name] is not None]
            if unused:
                name = "lp-bundle" if isinstance(solver, ChainBundle) else "lp-trws"
                raise TypeError(
                    f"{', '.join(unused)} with {name}, which has no start and no points of its own; expected "
                    "none."
                )
            num_steps = whole(num_steps, "num_steps", 1, "1 or more")
            return trees.solve(self, solver, num_steps=num_steps, rounding=round_)
        if isinstance(solver, LinearSolver):
            return linear.solve(
                self,
                solver,
                num_steps=num_steps,
                rounding=round_,
                x0=x0,
                trace=trace,
                tol=tol,
                callback=callback,
            )
        found = solvers.minimize(
            self.energy(), solver, x0, num_steps=num_steps, rounding=rounding, trace=trace, tol=tol,
            callback=callback,
        )  # fmt: skip
        return GraphSolution(
            found.probabilities,
            found.objective,
            round_ if restarts else found.rounding,
            found.trace,
            found.converged,
            self,
            engine=found.engine,
        )


@dataclass(frozen=True, eq=False, repr=False)
class GraphSolution(Solution):
    """A ``Solution`` whose energy includes the model's constant. ``bound`` is None if no bound is known."""

    model: SparseMRF | None = None
    bound: Tensor | None = None  # (*batch,), float64: lower bound on every labelling's energy

    @property
    def _printed(self) -> tuple[str, ...]:
        return (*super()._printed, "bound")

    @kept_property
    def proven(self) -> Tensor | None:
        """True where the bound proves the labels optimal, ``(*batch,)``: to 1e-9 of the energy's size.

        The size is that of the energy or, if larger, the median range of the costs of a node or an edge.
        """
        if self.bound is None:
            return None
        assert self.model is not None
        size = torch.maximum(self.energy.abs(), typical_costs(self.model))
        near = torch.isfinite(self.energy) & (self.energy - self.bound <= PROOF * size)
        return near | (self.energy == self.bound)  # both +inf: every labelling has a forbidden pair

    @kept_property
    def energy(self) -> Tensor:
        """E of the labels, ``(*batch,)`` in float64; +inf if they have a forbidden pair."""
        assert self.model is not None
        return self.model.value(self.labels)


@torch.no_grad()
def typical_costs(model: SparseMRF) -> Tensor:
    """The median of the ranges of the finite costs of nodes and of edges, ``(*batch,)``, without ranges of 0.

    0 if there is no other.
    """
    unary = model.unary.detach()
    least, finite = unary.amin(-1), unary < torch.inf
    own = (unary.masked_fill(~finite, -torch.inf).amax(-1) - least).double()
    of_edges = model._given.spreads().double()  # type: ignore[attr-defined]
    of_edges = of_edges.expand(*unary.shape[:-2], of_edges.shape[-1] if model.num_edges else 0)
    ranges = torch.cat([own, of_edges], -1)
    return ranges.masked_fill(ranges == 0, torch.nan).nanmedian(-1).values.nan_to_num(0.0)


def _operator(pairwise: Potential, graph: Adjacency, unary: Tensor) -> Sparse:
    m, L = len(graph.edges), unary.shape[-1]
    if isinstance(pairwise, Tables):
        return TableEdges(graph, L, read_tables(pairwise.values, m, L, unary))
    weight = read_weight(pairwise.weight, m, unary)
    check_finite(weight, "the weight of the edges")
    matrix = pairwise.matrix(L, unary)
    if matrix is not None and (matrix.dim() < 2 or matrix.shape[-2:] != (L, L)):
        raise ValueError(
            f"the matrix over labels has shape {tuple(matrix.shape)}; expected ({L}, {L}) for {L} labels."
        )
    symmetric = not isinstance(pairwise, Full) or _is_symmetric(matrix)  # type: ignore[arg-type]
    return SharedEdges(graph, L, weight, matrix, symmetric)


def _is_symmetric(matrix: Tensor) -> bool:
    return has_values(matrix) and bool((matrix == matrix.mT).all())


def _finite(given: Sparse, unary: Tensor) -> Sparse:
    if isinstance(given, TableEdges):
        return TableEdges(given.graph, given.num_labels, finite_tables(given.values, unary))
    assert isinstance(given, SharedEdges)
    if given.matrix is None:
        return given
    matrix = finite_matrix(given.matrix, given.weight, len(given.graph.edges), unary)
    return SharedEdges(given.graph, given.num_labels, given.weight, matrix, given.symmetric)


def _check_batch(batch: torch.Size, unary: Tensor) -> None:
    if batch and batch != unary.shape[:-2]:
        raise ValueError(
            f"pairwise has a batch of {tuple(batch)} and unary one of {tuple(unary.shape[:-2])}; expected "
            "the same, or potentials without a batch."
        )


def _cardinalities(value: Any, unary: Tensor) -> Tensor:
    sizes = as_tensor(value).long()
    n, L = unary.shape[-2:]
    if sizes.shape != (n,) or bool((sizes < 1).any()) or bool((sizes > L).any()):
        raise ValueError(
            f"cardinalities of shape {tuple(sizes.shape)}; expected {n} numbers of labels from 1 to {L}."
        )
    beyond = torch.arange(L, device=sizes.device) >= sizes.unsqueeze(-1)
    if not bool((unary.detach().cpu()[..., beyond] == torch.inf).all()):
        raise ValueError(
            "cardinalities exclude labels that unary allows; expected +inf in unary for these labels."
        )
    return sizes
