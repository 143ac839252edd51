"""A graph's edges as monotonic chains of copies of its nodes, and the best labels of all chains at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.graphs.native import Costs
from fwcrf.torch_ops.adjacency import adjacency
from fwcrf.torch_ops.printed import in_one_line

_FAR = 1e9  # seconds: no limit


@dataclass(frozen=True, eq=False)
class Chains:
    """Every edge is in one chain, every node has a copy in each of its chains."""

    node: Tensor  # (copies,), the node of each copy
    chain: Tensor  # (copies,), 0 to count - 1
    edges: Tensor  # (m, 2), the copies that each edge joins, in the order of the graph's edges
    copies: Tensor  # (n,), the number of copies of each node

    __repr__ = in_one_line

    @property
    def count(self) -> int:
        return int(self.chain.max()) + 1


def chains(n: int, edges: Tensor) -> Chains:
    """Chains along which the numbers of the nodes rise: each node has as few copies as such chains allow.

    The k-th nearest earlier neighbour of a node is followed by the k-th nearest later one, so that the chains
    of a grid go straight on inside it.

    >>> found = chains(4, torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3]]))
    >>> found.node.tolist(), found.chain.tolist(), found.edges.tolist()
    ([0, 0, 1, 2, 3, 3], [0, 1, 0, 1, 1, 0], [[0, 2], [1, 3], [2, 5], [3, 4]])
    """
    ends = edges.cpu().numpy()
    low, high = np.minimum(*ends.T), np.maximum(*ends.T)
    length, m = high - low, len(ends)
    # The place of each edge among the edges to later (earlier) neighbours of its lower (higher) node.
    leaving, arriving = _places(low, length, n), _places(high, length, n)
    counts = np.ones(n, dtype=np.int64)
    np.maximum.at(counts, low, leaving + 1)
    np.maximum.at(counts, high, arriving + 1)
    first = np.concatenate([[0], np.cumsum(counts)])
    tail, head = first[low] + leaving, first[high] + arriving
    chain = np.full(first[-1], -1, dtype=np.int64)
    before = np.full(first[-1], -1, dtype=np.int64)
    before[head] = tail
    # Copies of lower nodes come first.
    starts = before < 0
    chain[starts] = np.arange(int(starts.sum()))
    jump = np.where(starts, np.arange(first[-1]), before)
    while not np.array_equal(jump, jump[jump]):
        jump = jump[jump]
    chain = chain[jump]
    turned = ends[:, 0] > ends[:, 1]
    pairs = np.stack([np.where(turned, head, tail), np.where(turned, tail, head)], -1).reshape(m, 2)
    return Chains(
        torch.from_numpy(np.repeat(np.arange(n), counts)),
        torch.from_numpy(chain),
        torch.from_numpy(pairs),
        torch.from_numpy(counts),
    )


def _places(node: np.ndarray, length: np.ndarray, n: int) -> np.ndarray:
    """The rank of each edge by length among the edges with the same node."""
    order = np.lexsort((length, node))
    first = np.searchsorted(node[order], np.arange(n))
    places = np.empty(len(node), dtype=np.int64)
    places[order] = np.arange(len(node)) - first[node[order]]
    return places


class ChainOracle:
    """min over labels of <u, y> + costs of the edges, over all chains at once, in linear time."""

    def __init__(self, found: Chains, costs: Costs) -> None:
        graph = adjacency(len(found.node), found.edges)
        self.found: Chains = found
        self._costs = costs
        self._graph = graph.first, graph.neighbor, graph.slot

    def __call__(self, unary: Tensor) -> Tensor:
        """Labels of the copies, ``(copies,)``, given their unaries ``(copies, L)``."""
        labels = unary.argmin(-1)
        native = _core.GraphModel(unary, *self._costs, *self._graph)
        native.eliminate(float(unary.shape[-1]), float("inf"), _FAR, labels)
        return labels

    def costs(self, labels: Tensor) -> Tensor:
        """The cost of the edges of each chain, ``(count,)``."""
        s, t = labels[self.found.edges].unbind(-1)
        _, weight, matrix, tables, _ = self._costs
        if tables is not None:
            each = tables[torch.arange(len(s), device="cpu"), s, t]
        else:
            assert weight is not None
            each = weight * ((s != t).double() if matrix is None else matrix[s, t])
        return self.sums(each, self.found.chain[self.found.edges[:, 0]])

    def sums(self, values: Tensor, chain: Tensor | None = None) -> Tensor:
        """Sums over the copies (or edges) of each chain, along the last axis."""
        chain = self.found.chain if chain is None else chain
        return values.new_zeros(*values.shape[:-1], self.found.count).index_add(-1, chain, values)
