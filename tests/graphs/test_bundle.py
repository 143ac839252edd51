"""The bundle over chains: covers of graphs, bounds against enumeration and against the linear program."""

import itertools

import pytest
import torch
from graph_models import model
from helpers import normal

import fwcrf
from fwcrf.graphs import Potts, Tables, TruncatedLinear, grid
from fwcrf.graphs.chains import chains


def energies(mrf):
    n, L = mrf.num_nodes, mrf.num_labels
    return mrf.value(torch.tensor(list(itertools.product(range(L), repeat=n))))


@pytest.mark.parametrize("seed", range(5))
def test_chains_have_every_edge_once_and_rise(seed):
    n = 12
    every = torch.combinations(torch.arange(n - 1))
    chosen = torch.rand(len(every), generator=torch.Generator().manual_seed(seed)) < 0.3 * seed
    edges = every[chosen]
    edges[::2] = edges[::2].flip(-1)
    found = chains(n, edges)
    assert torch.equal(found.node[found.edges], edges)
    assert torch.equal(torch.bincount(found.node, minlength=n), found.copies)
    a, b = found.edges.unbind(-1)
    assert torch.equal(found.chain[a], found.chain[b])
    ends = torch.bincount(found.edges.flatten(), minlength=len(found.node))
    assert int(ends.max()) <= 2 if len(edges) else True
    assert found.count == len(found.node) - len(edges)  # paths
    earlier, later = edges.amin(-1), edges.amax(-1)
    most = torch.maximum(torch.bincount(later, minlength=n), torch.bincount(earlier, minlength=n))
    assert torch.equal(found.copies, most.clamp(min=1))


def test_chains_of_a_grid_go_straight_on():
    edges, _ = grid((5, 6))
    found = chains(30, edges)
    for k in range(found.count):
        path = found.node[found.chain == k]
        for a, b, c in zip(path, path[1:], path[2:], strict=False):
            if 6 < b < 23 and b % 6 not in (0, 5):  # not at the border
                assert c - b == b - a


@pytest.mark.parametrize("kind", ["one weight", "weights", "linear", "quadratic", "matrix", "tables"])
@pytest.mark.parametrize("passes", [1, 100])
def test_bounds_and_labels_against_enumeration(kind, passes):
    mrf = model(kind)
    least = float(energies(mrf).min())
    found = mrf.solve("lp-bundle", 30, passes=passes)
    assert float(found.bound) <= least <= float(found.energy) + 1e-9
    bounds = found.bounds[0]
    assert all(b >= a for a, b in itertools.pairwise(bounds.tolist()))
    linear = float(mrf.solve("lp-trw", 0).bound)
    assert float(found.bound) <= linear + 1e-6
    assert float(found.bound) >= linear - 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_the_bundle_reaches_the_linear_program_where_messages_stall(seed):
    edges = torch.combinations(torch.arange(10))
    costs = Tables(normal(len(edges), 3, 3, seed=seed))
    mrf = fwcrf.SparseMRF(normal(10, 3, seed=seed + 9), edges, costs)
    stalled, found = mrf.solve("lp-trws", 500), mrf.solve("lp-bundle", 60)
    linear = float(mrf.solve("lp-trw", 0).bound)
    assert linear - float(stalled.bound) > 0.1
    assert -1e-7 <= linear - float(found.bound) < 0.02
    assert float(found.energy) <= float(stalled.energy) + 1e-9


def test_forbidden_labels_constants_and_float32():
    mrf = model("tables")
    unary = mrf.unary.clone()
    unary[0, 1:] = unary[2, 0] = torch.inf
    for dtype in (torch.float64, torch.float32):
        given = fwcrf.SparseMRF(unary.to(dtype), mrf.edges, Tables(mrf.tables().to(dtype)), constant=3.0)
        found = given.solve("lp-bundle", 30)
        least = float(energies(given).min())
        assert float(found.bound) <= least + 1e-6 and least <= float(found.energy) + 1e-5
        assert float(found.bound) > least - 5
        assert found.labels[0] == 0 and found.labels[2] != 0


def test_a_batch_is_its_images():
    edges, _ = grid((4, 4))
    unary = normal(2, 16, 3)
    both = fwcrf.SparseMRF(unary, edges, TruncatedLinear(1.0, 1.5)).solve("lp-bundle", 20)
    for k in range(2):
        one = fwcrf.SparseMRF(unary[k], edges, TruncatedLinear(1.0, 1.5)).solve("lp-bundle", 20)
        assert float(both.bound[k]) == float(one.bound) and torch.equal(both.labels[k], one.labels)


def test_graphs_without_edges_and_without_a_choice():
    found = fwcrf.SparseMRF(normal(4, 3), torch.zeros(0, 2, dtype=torch.int64), 1.0).solve("lp-bundle", 3)
    assert bool(found.proven)
    one = fwcrf.SparseMRF(normal(4, 1), [[0, 1], [1, 2], [2, 0]], 1.0).solve("lp-bundle", 3)
    assert bool(one.proven)


def test_weights_of_both_signs_at_many_nodes():
    edges, _ = grid((30, 30))
    mrf = fwcrf.SparseMRF(normal(900, 3), edges, Potts(normal(len(edges), seed=1)))
    stalled = mrf.solve("lp-trws", 20)
    found = mrf.solve("lp-bundle", 10, passes=20)
    assert float(stalled.bound) < float(found.bound) <= float(found.energy)


def test_refusals():
    mrf = model("weights")
    with pytest.raises(ValueError, match="planes=1"):
        mrf.solve("lp-bundle", planes=1)
    with pytest.raises(ValueError, match="passes=0"):
        mrf.solve("lp-bundle", passes=0)
    with pytest.raises(TypeError, match="x0 with lp-bundle"):
        mrf.solve("lp-bundle", x0=torch.softmax(-mrf.unary, -1))
