import itertools

import pytest
import torch
from torch.testing import assert_close

from fwcrf.lp import appearance, appearance_probabilities
from fwcrf.lp.traversal import traverse

GRAPHS = {
    "a cycle": (4, [[0, 1], [1, 2], [3, 2], [3, 0]]),
    "complete": (5, list(map(list, itertools.combinations(range(5), 2)))),
    "a bridge between triangles": (6, [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 3]]),
    "two components and a node": (6, [[0, 1], [1, 2], [2, 0], [3, 4]]),
    "parallel edges": (3, [[0, 1], [1, 0], [1, 2], [0, 2]]),
    "a grid": (6, [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]]),
    "a path": (4, [[1, 0], [1, 2], [3, 2]]),
}


def by_enumeration(n, edges):
    """The share of spanning forests, as large as can be, that have each edge."""
    size = n - len(traverse(n, torch.tensor(edges)).roots)
    trees = [
        chosen
        for chosen in itertools.combinations(range(len(edges)), size)
        if traverse(n, torch.tensor([edges[k] for k in chosen])).is_forest
    ]
    share = [sum(k in tree for tree in trees) / len(trees) for k in range(len(edges))]
    return torch.tensor(share, dtype=torch.float64)


@pytest.mark.parametrize("way", ["inverse", "factors"])
@pytest.mark.parametrize(("n", "edges"), GRAPHS.values(), ids=GRAPHS)
def test_equals_the_share_of_spanning_trees(n, edges, way, monkeypatch):
    if way == "factors":
        monkeypatch.setattr(appearance, "_SMALL", 0)
    assert_close(appearance_probabilities(n, torch.tensor(edges)), by_enumeration(n, edges))


def test_sums_to_the_number_of_edges_of_a_spanning_tree():
    grid = torch.arange(900).reshape(30, 30)
    across, down = torch.stack([grid[:, :-1], grid[:, 1:]], -1), torch.stack([grid[:-1], grid[1:]], -1)
    edges = torch.cat([across.reshape(-1, 2), down.reshape(-1, 2)])
    rho = appearance_probabilities(900, edges)
    assert float(rho.sum()) == pytest.approx(899)
    assert 0.45 < float(rho.min()) < float(rho.max()) < 0.8


def test_no_edges():
    assert appearance_probabilities(3, torch.zeros(0, 2, dtype=torch.int64)).shape == (0,)
