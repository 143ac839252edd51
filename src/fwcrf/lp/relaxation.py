"""The linear relaxation of a graph's energy, as rows on simplices: one row per node and per edge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fwcrf.energy import Energy
from fwcrf.pairwise import Diagonal, Pairwise
from fwcrf.torch_ops.native import with_memory_errors
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True, eq=False, repr=False)
class Relaxation(Energy):
    """E_LP(x) = <theta, x> with x of shape ``(*batch, n + m, L L)``.

    The first n rows are of nodes: L numbers, padded with forbidden labels. The last m rows are of edges: L L
    numbers, where edge (i, j) has labels s of i and t of j at s L + t. ``unary`` is theta, +inf for a
    forbidden label. A labelling is a point x whose rows are vertices and consistent, A x = 0. The local
    polytope is the set of all consistent points, so its minimum is a lower bound on every labelling's energy.

    Always float64, for reliable bounds.

    >>> E = relax(torch.tensor([[0.0, 2.0], [0.5, 0.0]]), torch.tensor([[0, 1]]), 1 - torch.eye(2)[None])
    >>> E.of_labels(E.rows(torch.tensor([0, 1])))
    tensor(1., dtype=torch.float64)
    """

    edges: Tensor  # (m, 2)
    num_nodes: int
    num_labels: int

    def nodes(self, x: Tensor) -> Tensor:
        """x_i, ``(*batch, n, L)``."""
        return x[..., : self.num_nodes, : self.num_labels]

    def pairs(self, x: Tensor) -> Tensor:
        """x_ij, ``(*batch, m, L, L)``."""
        return x[..., self.num_nodes :, :].unflatten(-1, (self.num_labels, self.num_labels))

    def join(self, nodes: Tensor, pairs: Tensor, fill: float = 0.0) -> Tensor:
        """x from the rows of nodes and edges; rows of nodes are padded with ``fill``."""
        L = self.num_labels
        return torch.cat([pad(nodes, (0, L * L - L), value=fill), pairs.flatten(-2)], -2)

    def disagreement(self, x: Tensor) -> Tensor:
        """A x, ``(*batch, m, 2, L)``: the marginals of each edge's row minus the rows of its nodes."""
        nodes, pairs = self.nodes(x), self.pairs(x)
        marginals = torch.stack([pairs.sum(-1), pairs.sum(-2)], -2)
        return marginals - nodes[..., self.edges, :]

    def transposed(self, y: Tensor) -> Tensor:
        """A' y."""
        return self.join(-self.gathered(y), y[..., 0, :, None] + y[..., 1, None, :])

    def gathered(self, y: Tensor) -> Tensor:
        """The sum of the messages ``(*batch, m, 2, L)`` at each node, ``(*batch, n, L)``."""
        total = y.new_zeros(*y.shape[:-3], self.num_nodes, self.num_labels)
        return total.index_add(-2, self.edges.flatten(), y.flatten(-3, -2))

    def bound(self, c: Tensor, y: Tensor) -> Tensor:
        """A lower bound on <c, x> over the local polytope, ``(*batch,)``, valid for any messages y.

        A x = 0 gives <A' y, x> = 0, so the sum of the row minima of c + A' y is a lower bound. It is the
        largest one if y solves the dual program. A bound on the rounding errors is subtracted.
        """
        finite = c.masked_fill(c == torch.inf, 0.0)
        sent = self.transposed(y)
        sizes = self.join(self.gathered(y.abs()), self.pairs(sent.abs())) + finite.abs()
        terms = c.shape[-2] + 2 * len(self.edges) + 2
        slack = terms * torch.finfo(c.dtype).eps * sizes.amax(-1).sum(-1)
        return (finite + sent).masked_fill(c == torch.inf, torch.inf).amin(-1).sum(-1) - slack

    def independent(self, nodes: Tensor) -> Tensor:
        """The point of the local polytope with these rows of nodes and their products as rows of edges."""
        i, j = self.edges.unbind(-1)
        return self.join(nodes, nodes[..., i, :, None] * nodes[..., j, None, :])

    def uniform(self) -> Tensor:
        """An interior point: all allowed labels of a node are equally likely."""
        allowed = (self.nodes(self.unary) < torch.inf).to(self.unary)
        return self.independent(allowed / allowed.sum(-1, keepdim=True))

    def rows(self, labels: Tensor) -> Tensor:
        """The labels of all rows, ``(*batch, n + m)``, from the labels of the nodes."""
        i, j = self.edges.unbind(-1)
        return torch.cat([labels, labels[..., i] * self.num_labels + labels[..., j]], -1)

    @property
    def degrees(self) -> Tensor:
        """The number of edges of each node, ``(n,)``."""
        return torch.bincount(self.edges.flatten(), minlength=self.num_nodes).to(self.unary)


@with_memory_errors
def relax(unary: Tensor, edges: Tensor, tables: Tensor) -> Relaxation:
    """The relaxation of unary energies ``(*batch, n, L)``, +inf to forbid, and tables ``(..., m, L, L)``."""
    *batch, n, L = unary.shape
    if edges.dim() != 2 or edges.shape[1] != 2 or edges.dtype != torch.int64:
        raise ValueError(
            f"edges is {edges.dtype} of shape {tuple(edges.shape)}; expected int64 of shape (m, 2)."
        )
    if tables.shape[-3:] != (len(edges), L, L):
        raise ValueError(
            f"tables has shape {tuple(tables.shape)}; expected {(len(edges), L, L)}: one table over {L} "
            "labels for each edge."
        )
    if not bool(torch.isfinite(tables).all()):
        raise ValueError("tables has entries that are not finite; expected a number for each pair of labels.")
    i, j = edges.unbind(-1)
    forbidden = unary == torch.inf
    pairs = tables.double().expand(*batch, len(edges), L, L)
    pairs = pairs.masked_fill(forbidden[..., i, :, None] | forbidden[..., j, None, :], torch.inf)
    theta = torch.cat([pad(unary.double(), (0, L * L - L), value=torch.inf), pairs.flatten(-2)], -2)
    return Relaxation(Diagonal(theta.new_zeros(1, 1)), theta, edges, n, L)


@dataclass(frozen=True, eq=False)
class Consistency(Pairwise):
    """weight A' A, the operator of the penalty weight/2 |A x|^2."""

    relaxation: Relaxation
    weight: float

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight * self.relaxation.transposed(self.relaxation.disagreement(x))

    def to_dense(self) -> Tensor:
        shape = self.relaxation.unary.shape[-2:]
        rows = shape.numel()
        u = self.relaxation.unary
        unit = torch.eye(rows, dtype=u.dtype, device=u.device).unflatten(-1, shape)
        return self(unit).flatten(-2)
