"""``bound`` and ``proven`` of models with costs of any size, against enumeration."""

import math

import pytest
import torch
from graph_models import best, random_model
from helpers import normal

from fwcrf.graphs import Full, SparseMRF, Tables, search


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 1e9])
def test_small_costs_prove_no_more_than_large_ones(scale, monkeypatch):
    """Without exact methods, a gap of 1e-9 is none only for energies of about 1 or more."""
    monkeypatch.setattr(search, "exactly", lambda s: None)
    for seed in range(12):
        plain = random_model(seed)
        mrf = SparseMRF(scale * plain.unary, plain.edges, scale * plain.tables())
        least = best(mrf)
        size = 1e-9 * scale * max(1.0, abs(least) / scale)
        for solver in (None, "lp-trws", "lp-bundle"):
            found = mrf.solve() if solver is None else mrf.solve(solver, 20)
            assert float(found.bound) <= least + size
            if bool(found.proven):
                assert float(found.energy) <= least + size


def test_labels_with_a_forbidden_pair_prove_nothing():
    tables = torch.full((1, 2, 2), torch.inf, dtype=torch.float64)
    tables[0, 1, 1] = 0.0
    mrf = SparseMRF(torch.tensor([[0.0, 9.0], [0.0, 9.0]]).double(), [[0, 1]], Tables(tables))
    for solver in ("lp-trws", "lp-bundle", "lp-meshi"):
        found = mrf.solve(solver, 1, rounding=lambda E, x: torch.zeros(2, dtype=torch.int64))
        assert float(found.energy) == math.inf and float(found.bound) < math.inf
        assert not bool(found.proven)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forbidden_pairs_among_tiny_costs(dtype):
    for seed in range(8):
        matrix = 1e-25 * normal(3, 3, seed=seed, dtype=dtype)
        matrix = (matrix + matrix.mT) / 2
        matrix[0, 2] = matrix[2, 0] = torch.inf
        mrf = SparseMRF(
            1e-25 * normal(5, 3, seed=seed, dtype=dtype), [[0, 1], [1, 2], [2, 3], [0, 3]], Full(matrix)
        )
        found = mrf.solve()
        assert float(found.energy) <= best(mrf) + 1e-33
        assert float(found.bound) <= best(mrf) + 1e-33


def test_branch_and_bound_proves_that_no_labelling_is_allowed(monkeypatch):
    """The best labelling of the finite costs has a forbidden pair: then all labellings have one."""
    monkeypatch.setattr(search, "exactly", lambda s: None)
    different = torch.zeros(2, 2, dtype=torch.float64)
    different[0, 0] = different[1, 1] = torch.inf
    edges = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4]]  # two colours do not suffice for an odd cycle
    found = SparseMRF(normal(2, 5, 2), edges, Full(different)).solve()
    assert found.bound.tolist() == found.energy.tolist() == [math.inf] * 2
    assert found.proven.tolist() == [True, True]
