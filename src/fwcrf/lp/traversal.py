"""Breadth-first search: spanning trees of a graph's components, with their edges by level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.printed import in_one_line


class Level(NamedTuple):
    """Nodes of one depth, each with its parent and the edge to it."""

    child: Tensor
    parent: Tensor
    edge: Tensor
    turned: Tensor  # True if the child is the second node of the edge

    __repr__ = in_one_line


@dataclass(frozen=True, eq=False)
class Traversal:
    """One spanning tree per component; ``levels[0]`` are the children of the roots."""

    roots: Tensor
    levels: list[Level]
    is_forest: bool  # True if every edge is in a tree

    __repr__ = in_one_line


def traverse(n: int, edges: Tensor) -> Traversal:
    """The trees of a graph with n nodes and edges ``(m, 2)``.

    >>> found = traverse(4, torch.tensor([[1, 0], [2, 1]]))
    >>> found.roots, len(found.levels), found.is_forest
    (tensor([0, 3]), 2, True)
    """
    ends = edges.cpu().numpy()
    m = len(ends)
    order = np.argsort(ends.T.ravel(), kind="stable")
    first = np.searchsorted(ends.T.ravel()[order], np.arange(n + 1)).tolist()
    far = ends[:, ::-1].T.ravel()[order].tolist()
    slot = order.tolist()
    depth = [-1] * n
    roots, by_depth = [], []
    for root in range(n):
        if depth[root] >= 0:
            continue
        depth[root] = 0
        roots.append(root)
        queue = [root]
        for node in queue:
            for k in range(first[node], first[node + 1]):
                child = far[k]
                if depth[child] < 0:
                    depth[child] = depth[node] + 1
                    if depth[child] > len(by_depth):
                        by_depth.append([])
                    # The slot belongs to the parent. A slot below m: the parent is the edge's first node.
                    by_depth[depth[child] - 1].append((child, node, slot[k] % m, slot[k] < m))
                    queue.append(child)
    levels = [_level(rows, edges.device) for rows in by_depth]
    return Traversal(torch.tensor(roots, dtype=torch.int64, device=edges.device), levels, m == n - len(roots))


def _level(rows: list[tuple[int, int, int, bool]], device: torch.device) -> Level:
    child, parent, edge, turned = torch.tensor(rows, dtype=torch.int64, device=device).unbind(-1)
    return Level(child, parent, edge, turned.bool())
