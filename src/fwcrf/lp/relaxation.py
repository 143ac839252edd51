"""The linear relaxation of a graph's energy, laid out as rows on simplices: one per node, one per edge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from fwcrf.energy import Energy
from fwcrf.pairwise import Diagonal, Pairwise


@dataclass(frozen=True, eq=False)
class Relaxation(Energy):
    """E_LP(x) = <theta, x> with x of shape ``(*batch, n + m, L L)``.

    The first n rows are the nodes', L numbers and then forbidden labels; the others are the edges', L L
    numbers each, those of edge (i, j) at s L + t for the labels s of i and t of j. ``unary`` is theta, +inf
    where a label is forbidden. A labelling is a point x whose rows are vertices that agree with one another,
    A x = 0; the local polytope is all of A x = 0, and its minimum a lower bound on every labelling's energy.

    Always float64: a bound is of use only if it can be trusted.

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
        """The rows of both, with ``fill`` where a node's row has no label."""
        L = self.num_labels
        return torch.cat([pad(nodes, (0, L * L - L), value=fill), pairs.flatten(-2)], -2)

    def disagreement(self, x: Tensor) -> Tensor:
        """A x, ``(*batch, m, 2, L)``: what the row of an edge says of its nodes, less what they say."""
        nodes, pairs = self.nodes(x), self.pairs(x)
        said = torch.stack([pairs.sum(-1), pairs.sum(-2)], -2)
        return said - nodes[..., self.edges, :]

    def transposed(self, y: Tensor) -> Tensor:
        """A' y."""
        return self.join(-self.gathered(y), y[..., 0, :, None] + y[..., 1, None, :])

    def gathered(self, y: Tensor) -> Tensor:
        """The sum of the messages ``(*batch, m, 2, L)`` at each node, ``(*batch, n, L)``."""
        total = y.new_zeros(*y.shape[:-3], self.num_nodes, self.num_labels)
        return total.index_add(-2, self.edges.flatten(), y.flatten(-3, -2))

    def bound(self, c: Tensor, y: Tensor) -> Tensor:
        """A number below <c, x> for every x of the local polytope, whatever the messages y, ``(*batch,)``.

        There <A' y, x> = 0, so that the least of <c + A' y, x> over each row by itself is a lower bound, the
        best of all if y solves the dual program. Less what rounding may have added, so that it holds as
        printed.
        """
        finite = c.masked_fill(c == torch.inf, 0.0)
        sent = self.transposed(y)
        sizes = self.join(self.gathered(y.abs()), self.pairs(sent.abs())) + finite.abs()
        terms = c.shape[-2] + 2 * len(self.edges) + 2
        slack = terms * torch.finfo(c.dtype).eps * sizes.amax(-1).sum(-1)
        return (finite + sent).masked_fill(c == torch.inf, torch.inf).amin(-1).sum(-1) - slack

    def independent(self, nodes: Tensor) -> Tensor:
        """The point of the local polytope with these rows of nodes and products of them for the edges."""
        i, j = self.edges.unbind(-1)
        return self.join(nodes, nodes[..., i, :, None] * nodes[..., j, None, :])

    def uniform(self) -> Tensor:
        """A point inside: every label that is allowed is as likely as the others."""
        allowed = (self.nodes(self.unary) < torch.inf).to(self.unary)
        return self.independent(allowed / allowed.sum(-1, keepdim=True))

    def rows(self, labels: Tensor) -> Tensor:
        """The labels of all rows, ``(*batch, n + m)``, for those of the nodes."""
        i, j = self.edges.unbind(-1)
        return torch.cat([labels, labels[..., i] * self.num_labels + labels[..., j]], -1)

    @property
    def degrees(self) -> Tensor:
        """How many edges each node has, ``(n,)``."""
        return torch.bincount(self.edges.flatten(), minlength=self.num_nodes).to(self.unary)


def relax(unary: Tensor, edges: Tensor, tables: Tensor) -> Relaxation:
    """Of unary energies ``(*batch, n, L)``, +inf to forbid a label, and finite tables ``(..., m, L, L)``."""
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
    """weight A' A: with it, an energy has the penalty weight/2 |A x|^2."""

    relaxation: Relaxation
    weight: float

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight * self.relaxation.transposed(self.relaxation.disagreement(x))

    def to_dense(self) -> Tensor:
        shape = self.relaxation.unary.shape[-2:]
        rows = shape.numel()
        unit = torch.eye(rows).to(self.relaxation.unary).unflatten(-1, shape)
        return self(unit).flatten(-2)
