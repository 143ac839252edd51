"""The operator P of a sparse graph, the counterpart of ``pairwise.dense``."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels.operator import check_values
from fwcrf.pairwise import Pairwise, largest, products
from fwcrf.torch_ops.adjacency import Adjacency
from fwcrf.torch_ops.edges import edge_sum, table_sum
from fwcrf.torch_ops.native import threads_for
from fwcrf.torch_ops.printed import in_one_line


class Sparse(Pairwise):
    """P with a block per edge: T_ij at (i, j) and T_ij' at (j, i), so that an edge costs x_i' T_ij x_j.

    Edges listed several times, in either direction, add up. P has no self-edges, and none were removed from
    it, so no diagonal is known that would make P definite.
    """

    graph: Adjacency
    num_labels: int

    @property
    @abstractmethod
    def batch_shape(self) -> torch.Size:
        """The batch shape of the potentials, () without a batch."""

    def __call__(self, x: Tensor) -> Tensor:
        return self._sum(x, None)

    def plus(self, x: Tensor, unary: Tensor) -> Tensor:
        if unary.dtype != x.dtype or unary.device != x.device:
            return self(x) + unary
        return self._sum(x, unary)

    def _sum(self, x: Tensor, unary: Tensor | None) -> Tensor:
        self.check(x)
        batch = x.shape[:-2]
        if self.batch_shape and self.batch_shape != batch:
            batch = torch.broadcast_shapes(batch, self.batch_shape)
        if unary is not None and unary.shape[:-2] != batch:
            batch = torch.broadcast_shapes(batch, unary.shape[:-2])
        u = None if unary is None else _images(unary, batch, 2)
        return self._flat(_images(x, batch, 2), u, batch).view(*batch, *x.shape[-2:])

    @abstractmethod
    def _flat(self, x: Tensor, unary: Tensor | None, batch: torch.Size) -> Tensor:
        """P x + unary for ``(images, n, L)``."""

    def check(self, x: Tensor) -> None:
        check_values(x, self.graph.n, self.batch_shape)
        if x.shape[-1] != self.num_labels:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected (*batch, {self.graph.n}, {self.num_labels}): "
                f"{self.num_labels} labels on the last axis."
            )

    @abstractmethod
    def tables(self) -> Tensor:
        """T_ij of every edge, ``(*batch, m, L, L)``."""

    @abstractmethod
    def double(self) -> Sparse:
        """The operator in float64: its tables are the costs that ``of_labels`` sums."""

    @abstractmethod
    def spreads(self) -> Tensor:
        """The largest minus the least finite cost of each edge, ``(*batch, m or 1)``."""

    def to_dense(self) -> Tensor:
        tables, (i, j) = self.tables(), self.graph.edges.long().unbind(-1)
        n, L = self.graph.n, self.num_labels
        blocks = tables.new_zeros(*tables.shape[:-3], n * n, L, L)
        blocks = blocks.index_add(-3, i * n + j, tables).index_add(-3, j * n + i, tables.mT)
        return blocks.unflatten(-3, (n, n)).transpose(-3, -2).reshape(*tables.shape[:-3], n * L, n * L)

    @abstractmethod
    def of_labels(self, labels: Tensor) -> Tensor:
        """The total cost of the edges, ``(*batch,)`` in float64, for labels ``(*batch, n)``."""

    @torch.no_grad()
    def descend(self, unary: Tensor, x: Tensor, *, max_sweeps: int, restarts: int, seed: int) -> Tensor:
        self.check(x)
        batch = x.shape[:-2]
        to = lambda t: t.detach().to(device="cpu", dtype=unary.dtype).contiguous()  # noqa: E731
        graph = self.graph.to(torch.device("cpu"))
        weight, matrix, tables = (None if t is None else to(t) for t in self._potentials(batch))
        x_, u = to(_images(x, batch, 2)), to(_images(unary, batch, 2))
        out = torch.empty(x_.shape[:-1], dtype=torch.int64, device="cpu")
        # One thread per image: the descent visits the nodes of an image in sequence.
        threads = min(len(x_), threads_for(20 * x_.numel()))
        _core.graph_descent(
            u, x_, weight, matrix, tables, graph.first, graph.neighbor, graph.slot, max_sweeps, restarts,
            seed % 2**64, out, max(1, threads),
        )  # fmt: skip
        return out.view(*batch, -1).to(x.device)

    @abstractmethod
    def _potentials(self, batch: torch.Size) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Weights (1 or images, m or 1) and matrix (1 or images, L, L), or tables (1 or images, m, L, L)."""


@dataclass(frozen=True, eq=False)
class SharedEdges(Sparse):
    """T_ij = weight M for all edges. M is a matrix, or Potts if ``matrix`` is None."""

    graph: Adjacency
    num_labels: int
    weight: Tensor  # (*batch, m), or (*batch, 1) for a common weight
    matrix: Tensor | None = None  # (*batch, L, L)
    symmetric: bool = True  # True only if M' = M is known

    __repr__ = in_one_line

    @property
    def magnitude(self) -> float:  # type: ignore[override]
        return largest(self.weight) * (1.0 if self.matrix is None else _largest_finite(self.matrix))

    @property
    def batch_shape(self) -> torch.Size:
        if self.matrix is None or self.matrix.dim() == 2:
            return self.weight.shape[:-1]
        return torch.broadcast_shapes(self.weight.shape[:-1], self.matrix.shape[:-2])

    def _flat(self, x: Tensor, unary: Tensor | None, batch: torch.Size) -> Tensor:
        weight, matrix, _ = self._potentials(batch)
        assert weight is not None
        weight = weight.to(x)
        if matrix is None or self.symmetric:
            M = None if matrix is None else matrix.to(x)
            return edge_sum(x, unary, weight, M, matrix is None, 1.0, self.graph.arrays)
        # M = even + odd part. The second node of an edge gets M' = even - odd, hence -1.0 for the odd part.
        even, odd = 0.5 * (matrix + matrix.mT).to(x), 0.5 * (matrix - matrix.mT).to(x)
        y = edge_sum(x, unary, weight, even, False, 1.0, self.graph.arrays)
        return edge_sum(x, y, weight, odd.mT, False, -1.0, self.graph.arrays)

    def _potentials(self, batch: torch.Size) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        matrix = None if self.matrix is None else _images(self.matrix, batch, 2, one=True)
        return _images(self.weight, batch, 1, one=True), matrix, None

    def _matrix(self) -> Tensor:
        if self.matrix is not None:
            return self.matrix
        return 1 - torch.eye(self.num_labels, dtype=self.weight.dtype, device=self.weight.device)

    def double(self) -> SharedEdges:
        matrix = None if self.matrix is None else self.matrix.double()
        return replace(self, weight=self.weight.double(), matrix=matrix)

    def spreads(self) -> Tensor:
        return self.weight.detach().abs() * _spread(self._matrix()).unsqueeze(-1)

    def tables(self) -> Tensor:
        weight = self.weight.expand(*self.weight.shape[:-1], len(self.graph.edges))
        return weight[..., None, None] * self._matrix().unsqueeze(-3)

    def of_labels(self, labels: Tensor) -> Tensor:
        i, j = self.graph.edges.long().unbind(-1)
        s, t = labels[..., i], labels[..., j]
        matrix = self._matrix()
        if matrix.dim() == 2:
            cost = matrix[s, t]
        else:
            batch = labels.shape[:-1]
            flat = matrix.expand(*batch, *matrix.shape[-2:]).flatten(-2)
            cost = flat.gather(-1, s * self.num_labels + t)
        return (self.weight.double() * cost.double()).sum(-1)

    def label_products(self, x: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None] | None:
        M = self._matrix().double()
        if M.dim() > 2 or not self.symmetric:
            return None
        batch = torch.broadcast_shapes(x.shape[:-2], self.batch_shape)
        weight = _images(self.weight, batch, 1, one=True).to(x)
        y = edge_sum(_images(x, batch, 2), None, weight, None, False, 1.0, self.graph.arrays)
        return [(products(x, y.view(*batch, *x.shape[-2:])), M)], None

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        M, (i, j) = self._matrix().abs(), self.graph.edges.long().unbind(-1)
        weight = self.weight.abs().expand(*self.batch_shape, len(i)).unsqueeze(-1)
        none = weight.new_zeros(*self.batch_shape, self.graph.n, 1)
        along, against = none.index_add(-2, i, weight), none.index_add(-2, j, weight)
        return along * M.sum(-1).unsqueeze(-2) + against * M.sum(-2).unsqueeze(-2)


@dataclass(frozen=True, eq=False)
class TableEdges(Sparse):
    """T_ij from a table per edge."""

    graph: Adjacency
    num_labels: int
    values: Tensor  # (*batch, m, L, L)

    __repr__ = in_one_line

    @property
    def magnitude(self) -> float:  # type: ignore[override]
        return _largest_finite(self.values)

    @property
    def batch_shape(self) -> torch.Size:
        return self.values.shape[:-3]

    def _flat(self, x: Tensor, unary: Tensor | None, batch: torch.Size) -> Tensor:
        tables = _images(self.values, batch, 3, one=True)
        return table_sum(x, unary, tables.to(x), self.graph.arrays)

    def _potentials(self, batch: torch.Size) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return None, None, _images(self.values, batch, 3, one=True)

    def double(self) -> TableEdges:
        return replace(self, values=self.values.double())

    def spreads(self) -> Tensor:
        return _spread(self.values)

    def tables(self) -> Tensor:
        return self.values

    def of_labels(self, labels: Tensor) -> Tensor:
        i, j = self.graph.edges.long().unbind(-1)
        chosen = (labels[..., i] * self.num_labels + labels[..., j]).unsqueeze(-1)
        flat = self.values.flatten(-2).expand(*labels.shape[:-1], -1, -1)
        return flat.gather(-1, chosen).sum((-2, -1), dtype=torch.float64)

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        i, j = self.graph.edges.long().unbind(-1)
        size = self.values.abs()
        sums = size.new_zeros(*self.batch_shape, self.graph.n, num_labels)
        return sums.index_add(-2, i, size.sum(-1)).index_add(-2, j, size.sum(-2))


def _largest_finite(costs: Tensor) -> float:
    """The largest absolute cost, without +inf for forbidden pairs; -inf is refused elsewhere."""
    return largest(costs.detach().masked_fill(torch.isinf(costs), 0.0))


def _spread(costs: Tensor) -> Tensor:
    """The largest minus the least finite cost of matrices ``(..., L, L)``; 0 if there is none."""
    flat = costs.detach().flatten(-2)
    infinite = torch.isinf(flat)
    low, high = flat.amin(-1), flat.masked_fill(infinite, -torch.inf).amax(-1)
    return (high - low).masked_fill(infinite.all(-1), 0.0)


def _images(t: Tensor, batch: torch.Size, axes: int, *, one: bool = False) -> Tensor:
    """``t`` with the batch as one axis; with ``one``, of size 1 if it has a single image."""
    own = t.shape[: t.dim() - axes]
    rest = t.shape[t.dim() - axes :]
    if one and math.prod(own) == 1:
        return t.reshape(1, *rest)
    return (t if own == batch else t.expand(*batch, *rest)).reshape(math.prod(batch), *rest)
