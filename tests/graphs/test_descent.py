"""Local search on graphs, in native code."""

import pytest
import torch
from graph_models import BATCHED, EDGES, POTENTIALS, L, N, best, model
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from problems import feasible

import fwcrf
from fwcrf import rounding
from fwcrf.graphs import SparseMRF, grid
from fwcrf.pairwise import Matrix


@given(st.sampled_from(sorted(POTENTIALS)), st.integers(0, 10_000), st.booleans())
def test_energy_does_not_rise_and_no_flip_lowers_it(kind, seed, single):
    dtype = torch.float32 if single else torch.float64
    mrf = model(kind, dtype, seed=seed)
    E, x = mrf.energy(), feasible(N, L, seed=seed + 1).to(dtype)
    labels = rounding.bcd(E, x)
    tolerance = 1e-5 if single else 1e-9
    now = float(mrf.value(labels))
    assert now <= float(E.value(x)) + tolerance
    for i in range(N):
        for s in range(L):
            other = labels.clone()
            other[i] = s
            assert float(mrf.value(other)) >= now - tolerance


@pytest.mark.parametrize("kind", POTENTIALS)
def test_from_labels(kind):
    mrf = model(kind)
    for seed in range(10):
        labels = torch.randint(0, L, (N,), generator=torch.Generator().manual_seed(seed))
        x = torch.nn.functional.one_hot(labels, L).double()
        found = rounding.bcd(mrf.energy(), x)
        assert mrf.value(found) <= mrf.value(labels) + 1e-12
        # Where nothing can be gained nothing moves.
        again = torch.nn.functional.one_hot(found, L).double()
        assert torch.equal(rounding.bcd(mrf.energy(), again), found)


@pytest.mark.parametrize("kind", POTENTIALS)
def test_same_labels_as_the_search_on_a_matrix(kind):
    """Which goes through the nodes in the same order."""
    mrf = model(kind, seed=4)
    dense = fwcrf.Energy(Matrix(mrf.energy().pairwise.to_dense(), L), mrf.unary)
    x = feasible(N, L, seed=3)
    ours, theirs = rounding.bcd(mrf.energy(), x), rounding.bcd(dense, x)
    assert float(mrf.value(ours)) <= float(mrf.energy().value(x))
    assert float(mrf.value(theirs)) <= float(mrf.energy().value(x))
    once = rounding.bcd(mrf.energy(), x, max_applications=1)
    assert torch.equal(once, rounding.bcd(dense, x, max_applications=1))


@pytest.mark.parametrize("kind", POTENTIALS)
def test_restarts_only_lower_the_energy(kind):
    mrf = model(kind, seed=11)
    x = feasible(N, L, seed=2)
    energies = [float(mrf.value(rounding.bcd(mrf.energy(), x, restarts=r, seed=5))) for r in (0, 1, 3, 40)]
    assert energies == sorted(energies, reverse=True)
    assert energies[-1] == pytest.approx(best(mrf), abs=1e-9)


def test_restarts_are_random_but_reproducible():
    edges, _ = grid((20, 20))
    mrf = SparseMRF(0.1 * normal(400, 2), edges, normal(len(edges), seed=1))
    runs = [mrf.solve("mf", 3, restarts=1, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(runs[0].labels, runs[1].labels)
    assert not torch.equal(runs[0].labels, runs[2].labels)
    assert float(runs[0].energy) < float(mrf.solve("mf", 3).energy)


def test_restarts_do_not_take_forbidden_labels():
    unary = normal(30, 4)
    unary[::2, 1:3] = torch.inf
    edges = torch.stack([torch.arange(29), torch.arange(1, 30)], -1)
    found = SparseMRF(unary, edges, -1.0).solve(restarts=20)
    assert torch.isfinite(found.energy)


@pytest.mark.parametrize("kind", BATCHED)
def test_batches(kind):
    mrf = SparseMRF(normal(2, N, L), EDGES, BATCHED[kind]())
    x = feasible(2, N, L)
    labels = rounding.bcd(mrf.energy(), x)
    P = mrf.energy().pairwise.to_dense()
    for i in range(2):
        alone = fwcrf.Energy(Matrix(P[i], L), mrf.unary[i])
        assert float(alone.of_labels(labels[i])) <= float(alone.value(x[i])) + 1e-12
    assert torch.equal(labels, rounding.bcd(mrf.energy(), x))


def test_its_input_is_left_alone():
    mrf = model("tables")
    x = feasible(N, L)
    before, unary = x.clone(), mrf.unary.clone()
    rounding.bcd(mrf.energy(), x, restarts=3)
    assert torch.equal(x, before) and torch.equal(mrf.unary, unary)


def test_dense_models_have_no_restarts():
    E = fwcrf.Energy(Matrix(torch.zeros(6, 6), 3), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="restarts=2 with Matrix; expected 0"):
        rounding.bcd(E, torch.full((2, 3), 1 / 3), restarts=2)


def test_restarts_are_checked():
    mrf = model("weights")
    with pytest.raises(ValueError, match="restarts=-1; expected 0 or more"):
        mrf.solve(restarts=-1)
    with pytest.raises(ValueError, match="expected rounding='bcd'"):
        mrf.solve(restarts=1, rounding="nearest")
