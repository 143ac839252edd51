"""Cycle cuts: bounds against enumeration, and proofs of spin glasses that messages leave with a gap."""

import math

import pytest
import torch
from graph_models import best
from helpers import normal
from shared_data import needs
from test_right_answers import instance

from fwcrf.graphs import Potts, SparseMRF, grid, search
from fwcrf.graphs.native import native_models


@pytest.fixture
def only_cuts(monkeypatch):
    """Without exact methods, branch and bound, and messages, nothing else has a bound."""
    for name in ("exactly", "messages"):
        monkeypatch.setattr(search, name, lambda s: None)
    monkeypatch.setattr(search, "branches", lambda s, work: None)


def binary(seed, n=8):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, n, (14, 2), generator=generator)  # some twice, in both directions
    edges = edges[edges[:, 0] != edges[:, 1]]
    unary = torch.randn(n, 2, generator=generator).double()
    if seed % 3 == 0:
        unary[2, 0] = unary[4, 1] = torch.inf
    return SparseMRF(unary, edges, torch.randn(len(edges), 2, 2, generator=generator).double(), constant=1.0)


def test_bounds_of_small_models(only_cuts):
    proven = 0
    for seed in range(12):
        mrf = binary(seed)
        found = mrf.solve(certify=True, time_limit=10.0)
        assert float(found.bound) <= best(mrf) + 1e-9
        assert float(found.energy) == pytest.approx(best(mrf), abs=1e-9)
        proven += bool(found.proven)
    assert proven >= 11  # the cycle inequalities suffice for graphs without a minor K_5


def test_a_spin_glass_is_proven(only_cuts):
    edges, _ = grid((7, 7))
    mrf = SparseMRF(0.1 * normal(49, 2), edges, Potts(normal(len(edges), seed=1)))
    assert not bool(mrf.solve().proven)
    found = mrf.solve(certify=True)
    assert bool(found.proven) and found.engine == "search: cycle cuts closed the gap"
    exact = mrf.unary.argmin(-1)
    value = native_models(mrf)[0].eliminate(1e6, 1e9, 1e9, exact)
    assert float(found.energy) == pytest.approx(value, abs=1e-8)


@needs("mrf")
def test_an_instance_of_a_competition_is_proven():
    mrf, _ = instance("Grids_28")
    found = mrf.solve(certify=True)
    assert bool(found.proven) and float(found.energy) == pytest.approx(-4563.1710, abs=1e-3)


def test_batches_edgeless_models_and_limits(only_cuts):
    edges, _ = grid((3, 4))
    unary = normal(2, 12, 2)
    mrf = SparseMRF(unary, edges, Potts(normal(2, len(edges), seed=1)))
    found = mrf.solve(certify=True)
    assert found.proven.tolist() == [True, True]
    for k in range(2):
        alone = SparseMRF(unary[k], edges, mrf.tables()[k])
        assert float(found.energy[k]) == pytest.approx(best(alone), abs=1e-9)
    assert bool(SparseMRF(normal(3, 2), [], 1.0).solve(certify=True).proven)
    none = mrf.solve(certify=True, time_limit=0.0)
    assert torch.isinf(none.bound).all() and float(none.bound[0]) == -math.inf


def test_refusals():
    mrf = SparseMRF(normal(4, 3), [[0, 1]], 1.0)
    with pytest.raises(ValueError, match="certify=True with 3 labels; expected"):
        mrf.solve(certify=True)
    with pytest.raises(TypeError, match="certify with a solver of 50 steps"):
        mrf.solve("l2fw", certify=True)
