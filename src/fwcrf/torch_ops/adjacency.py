"""The edges of a graph, and the incident edges of each node."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops.native import as_int64
from fwcrf.torch_ops.printed import in_one_line

# Nodes and edge ends have 32-bit indices.
MOST = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Adjacency:
    """Adjacency lists. Node i has the entries ``first[i]`` to ``first[i + 1] - 1`` of neighbor and slot."""

    n: int
    edges: Tensor  # (m, 2), int32
    first: Tensor  # (n + 1,), int64
    neighbor: Tensor  # (2 m,), int32: the node at the other end
    slot: Tensor  # (2 m,), int32: 2 * edge, plus 1 if node i is its second node

    __repr__ = in_one_line

    @property
    def arrays(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.first, self.neighbor, self.slot, self.edges

    def to(self, device: torch.device) -> Adjacency:
        return self if self.edges.device == device else Adjacency(self.n, *_moved(self, device))


def adjacency(n: int, edges: Tensor) -> Adjacency:
    """Adjacency lists of edges ``(m, 2)``. Entries of a node are in the order of the edges.

    >>> adjacency(3, torch.tensor([[0, 1], [2, 1]])).neighbor
    tensor([1, 0, 2, 1], dtype=torch.int32)
    """
    # torch.func would wrap the new tensors, but edges are plain numbers without derivatives.
    with torch._C._DisableFuncTorch():
        edges = checked_edges(n, edges)
        ends = edges.to(device="cpu", dtype=torch.int32).contiguous()
        first = torch.empty(n + 1, dtype=torch.int64, device="cpu")
        neighbor, slot = (torch.empty(2 * len(ends), dtype=torch.int32, device="cpu") for _ in range(2))
        _core.adjacency(ends, first, neighbor, slot)
    return Adjacency(n, ends, first, neighbor, slot)


def checked_edges(n: int, edges: Tensor) -> Tensor:
    """``edges`` if they are pairs of different nodes; raises otherwise."""
    if edges.numel() == 0 and edges.dim() < 2:
        edges = edges.reshape(0, 2).long()
    if edges.dim() != 2 or edges.shape[1] != 2:
        hint = " Did you mean edges.T?" if edges.dim() == 2 and edges.shape[0] == 2 else ""
        raise ValueError(
            f"edges has shape {tuple(edges.shape)}; expected (m, 2): two nodes per edge, and one list "
            f"of edges for the whole batch.{hint}"
        )
    if edges.dtype.is_floating_point or edges.dtype.is_complex or edges.dtype == torch.bool:
        raise TypeError(f"edges has dtype {edges.dtype}; expected integers: edges.long(), if all are whole.")
    edges = as_int64(edges)
    if n > MOST or 2 * len(edges) > MOST:
        raise ValueError(
            f"a graph of {n} nodes and {len(edges)} edges; expected at most {MOST} nodes and "
            f"{MOST // 2} edges."
        )
    if len(edges) == 0:
        return edges
    low, high = int(edges.min()), int(edges.max())
    if low < 0 or high >= n:
        at = int(((edges < 0) | (edges >= n)).any(-1).nonzero()[0])
        raise ValueError(
            f"edges name nodes {low} to {high}; expected 0 to {n - 1}. The first that does not fit is "
            f"edge {at}, {tuple(edges[at].tolist())}."
        )
    loops = edges[:, 0] == edges[:, 1]
    if bool(loops.any()):
        at = int(loops.nonzero()[0])
        raise ValueError(
            f"edge {at} joins node {int(edges[at, 0])} to itself; expected two different nodes. A cost of "
            "one node's label belongs in the unary."
        )
    return edges


def _moved(graph: Adjacency, device: torch.device) -> tuple[Tensor, ...]:
    return tuple(t.to(device) for t in (graph.edges, graph.first, graph.neighbor, graph.slot))
