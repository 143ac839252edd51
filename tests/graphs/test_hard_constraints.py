"""Forbidden pairs of labels and branch and bound: against enumeration, assignments and colourings."""

import itertools
import math

import pytest
import torch
from graph_models import best, labellings, random_model
from helpers import normal
from scipy.optimize import linear_sum_assignment

from fwcrf.graphs import SparseMRF, grid
from fwcrf.graphs.native import forbidden_pairs, native_models

LONG = 1e9


def constrained(seed, n=6, labels=3, share=0.45):
    """A random model in which some labelling, often few, avoids all forbidden pairs."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(n))
    edges = pairs[torch.rand(len(pairs), generator=generator) < 0.7]
    planted = torch.randint(0, labels, (n,), generator=generator)
    tables = torch.rand(len(edges), labels, labels, generator=generator).double()
    tables[torch.rand(tables.shape, generator=generator) < share] = torch.inf
    tables[torch.arange(len(edges)), planted[edges[:, 0]], planted[edges[:, 1]]] = 0.5
    return SparseMRF(torch.rand(n, labels, generator=generator).double(), edges, tables)


def colouring(n, labels, edges_per_node, seed):
    generator = torch.Generator().manual_seed(seed)
    planted = torch.randint(0, labels, (n,), generator=generator)
    pairs = torch.combinations(torch.arange(n))
    pairs = pairs[planted[pairs[:, 0]] != planted[pairs[:, 1]]]
    edges = pairs[torch.randperm(len(pairs), generator=generator)[: int(n * edges_per_node)]]
    different = torch.zeros(labels, labels).double().fill_diagonal_(torch.inf)
    return SparseMRF(torch.rand(n, labels, generator=generator).double(), edges, different)


def test_propagation_keeps_all_allowed_labellings():
    removed = 0
    for seed in range(30):
        mrf = constrained(seed)
        masks = forbidden_pairs(mrf)
        allowed = torch.ones(6, 3, dtype=torch.uint8)
        assert native_models(mrf)[0].propagate(masks[0], allowed)
        every = labellings(mrf)
        possible = every[torch.isfinite(mrf.value(every))]
        for i in range(6):
            assert set(possible[:, i].tolist()) <= set(allowed[i].nonzero().flatten().tolist())
        # Each label that is left has an allowed partner at each neighbour.
        for e, (i, j) in enumerate(mrf.edges.tolist()):
            free = (masks[0][e] == 0) & (allowed[i][:, None] > 0) & (allowed[j] > 0)
            assert torch.equal(free.any(1), allowed[i] > 0) and torch.equal(free.any(0), allowed[j] > 0)
        removed += int((allowed == 0).sum())
    assert removed > 0


def test_models_without_an_allowed_labelling_are_recognised():
    different = torch.zeros(2, 2).double().fill_diagonal_(torch.inf)
    pinned = torch.tensor([[0.0, torch.inf], [0.0, 1.0], [0.0, torch.inf]]).double()
    chain = SparseMRF(pinned, [[0, 1], [1, 2]], different)
    assert chain.solve().labels.tolist() == [0, 1, 0]
    pinned[2] = torch.tensor([torch.inf, 0.0])
    found = SparseMRF(pinned, [[0, 1], [1, 2]], different).solve()
    assert found.engine == "search: no labelling avoids all forbidden pairs"
    assert float(found.energy) == float(found.bound) == math.inf and bool(found.proven)


def test_repair_counts_and_removes_conflicts():
    for seed in range(20):
        mrf = constrained(seed, share=0.3)
        (mask,), (native,) = forbidden_pairs(mrf), native_models(mrf)
        labels = mrf.unary.argmin(-1)
        i, j = mrf.edges.T
        conflicts = mask[torch.arange(len(i)), labels[i], labels[j]].sum()
        assert native.repair(mask, 0, 0, LONG, labels.clone()) == int(conflicts)
        assert native.repair(mask, 100_000, seed, LONG, labels) == 0
        assert torch.isfinite(mrf.value(labels))


def test_a_batch_with_forbidden_pairs():
    one, two = constrained(1), constrained(1, share=0.45)
    unary = torch.stack([one.unary, two.unary.flip(-1)])
    found = SparseMRF(unary, one.edges, one.pairwise).solve()
    for k in range(2):
        alone = SparseMRF(unary[k], one.edges, one.pairwise)
        assert float(found.energy[k]) == pytest.approx(best(alone), abs=1e-9)


def test_colourings_near_the_limit():
    """Greedy labels and single moves leave conflicts; the search must not."""
    for mrf in (colouring(150, 3, 2.1, 0), colouring(200, 4, 3.75, 1)):
        assert float(mrf.solve("l2fw", restarts=3).energy) == math.inf
        assert float(mrf.solve(time_limit=0.6).energy) < math.inf


def test_assignments():
    """All nodes have different labels: linear assignment has the least energy."""
    for n in (8, 12, 20):
        edges = torch.combinations(torch.arange(n))
        different = torch.zeros(n, n).double().fill_diagonal_(torch.inf)
        unary = torch.rand(n, n, generator=torch.Generator().manual_seed(n)).double()
        found = SparseMRF(unary, edges, different).solve()
        least = unary.numpy()[linear_sum_assignment(unary.numpy())].sum()
        assert float(found.energy) == pytest.approx(least, abs=1e-9)
        assert float(found.bound) <= least + 1e-9


def test_branch_and_bound_is_exact():
    models = itertools.chain(map(constrained, range(10)), map(random_model, range(10)))
    for mrf in models:
        (native,) = native_models(mrf)
        labels = mrf.unary.argmin(-1)
        complete, error = native.branch(20, 10**6, 0.0, LONG, labels)
        assert complete and error < 1e-9
        assert float(mrf.value(labels)) == pytest.approx(best(mrf), abs=1e-9)


def test_branch_and_bound_without_visits_proves_nothing():
    mrf = SparseMRF(normal(9, 3), torch.combinations(torch.arange(9)), normal(36, 3, 3, seed=1))
    labels = mrf.unary.argmin(-1)
    before = labels.clone()
    complete, _ = native_models(mrf)[0].branch(20, 2, 0.0, LONG, labels)
    assert not complete and torch.equal(labels, before)


def test_patches_never_raise_the_energy_and_reach_the_optimum_of_small_models():
    edges, _ = grid((4, 5), connectivity=8)
    mrf = SparseMRF(normal(20, 4), edges, normal(len(edges), 4, 4, seed=2))
    (native,) = native_models(mrf)
    exact = mrf.unary.argmin(-1)
    assert native.branch(50, 10**7, 0.0, LONG, exact)[0]
    labels, energy = mrf.unary.argmin(-1), math.inf
    for k in range(15):
        gained = native.patches(4, 12, 10_000, k, LONG, labels)
        now = native.energy(labels)
        assert now <= energy + 1e-9 and (
            energy == math.inf or now == pytest.approx(energy + gained, abs=1e-9)
        )
        energy = now
    assert energy == pytest.approx(float(mrf.value(exact)), abs=1e-9)
