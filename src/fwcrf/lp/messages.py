"""Linear programs over the local polytope of a large graph: a labelling and a bound, by TRW-S."""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.lp.relaxation import Relaxation
from fwcrf.runtime import max_threads
from fwcrf.torch_ops.adjacency import adjacency

_FAR = 1e9  # seconds: no limit
_TABLES = 2  # EdgeShape::tables of csrc/graph/model.hpp
# TRW-S ends if ten passes raise the bound by less than this part of the costs' size.
_TOLERANCE = 1e-7


class Messages:
    """TRW-S over the chains of one image's graph.

    The local polytope of a graph with cycles is no product of trees: the program itself does not decompose,
    its dual does. The dual gives a bound. A labelling is a vertex of the polytope, and the best vertex if
    its cost attains the bound.
    """

    def __init__(self, relaxation: Relaxation) -> None:
        graph = adjacency(relaxation.num_nodes, relaxation.edges)
        self.relaxation = relaxation
        self._graph = graph.first, graph.neighbor, graph.slot

    def solve(self, c: Tensor, passes: int) -> tuple[Tensor, float]:
        """Labels of the nodes, ``(n,)``, of low cost <c, .>, and a lower bound on the minimum."""
        E = self.relaxation
        unary = E.nodes(c).cpu().contiguous()
        pairs = E.pairs(c).cpu()
        pairs = pairs.masked_fill(pairs == torch.inf, 0.0)  # a forbidden label has an infinite unary
        model = _core.GraphModel(unary, _TABLES, None, None, pairs, 0.0, *self._graph)
        labels = unary.argmin(-1)
        model.kick(0, 0, _FAR, labels)
        sent = torch.zeros(len(E.edges), E.num_labels, dtype=torch.float64, device="cpu")
        bounds = torch.empty(passes, dtype=torch.float64, device="cpu")
        tolerance = _TOLERANCE * abs(model.energy(labels))
        _, _, bound, _ = model.trws(sent, passes, _FAR, tolerance, labels, bounds, max_threads())
        model.kick(0, 0, _FAR, labels)
        return labels, bound
