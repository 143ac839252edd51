"""Energies, solvers and errors of SparseMRF, against enumeration."""

import numpy as np
import pytest
import torch
from graph_models import EDGES, POTENTIALS, L, M, N, best, by_hand, labellings, model, random_model
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st

import fwcrf
from fwcrf.graphs import Full, GraphSolution, Potts, SparseMRF, Tables, TruncatedLinear

every_kind = pytest.mark.parametrize("kind", POTENTIALS)


@every_kind
def test_energies_equal_those_by_hand(kind):
    mrf = model(kind)
    for labels in labellings(mrf)[::40]:
        expected = by_hand(mrf, labels.tolist())
        assert float(mrf.value(labels)) == pytest.approx(expected, abs=1e-12)
        assert float(mrf.energy().of_labels(labels)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("solver", fwcrf.solvers.names())
def test_every_solver_finds_labels_that_enumeration_cannot_refute(solver):
    mrf = random_model(3)
    found = mrf.solve(solver, num_steps=8)
    assert isinstance(found, GraphSolution) and found.bound is None
    assert found.labels.shape == (6,)
    assert best(mrf) - 1e-9 <= float(found.energy) < torch.inf
    assert float(found.energy) == pytest.approx(by_hand(mrf, found.labels.tolist()), abs=1e-9)
    x = found.probabilities
    assert (x >= -1e-9).all() and (x.sum(-1) - 1).abs().max() < 1e-6
    assert (x[mrf.unary == torch.inf] == 0).all()


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(1, 3))
def test_labels_are_feasible_and_no_node_gains_by_moving(seed, n, labels):
    mrf = random_model(seed, n, labels)
    found = mrf.solve("l2fw", num_steps=5, restarts=2)
    energy = float(found.energy)
    assert best(mrf) - 1e-9 <= energy
    for i in range(n):
        for s in range(labels):
            other = found.labels.clone()
            other[i] = s
            assert float(mrf.value(other)) >= energy - 1e-9


def test_twelve_nodes_to_the_optimum():
    """Restarts find the best of 4096 labellings of a binary model."""
    for seed in range(5):
        mrf = random_model(seed, n=12, labels=2)
        assert float(mrf.solve(restarts=20).energy) == pytest.approx(best(mrf), abs=1e-9)


def test_a_batch_is_its_images():
    unary, weights = normal(3, N, L), normal(3, M, seed=1)
    together = SparseMRF(unary, EDGES, Potts(weights)).solve("mf", num_steps=5)
    assert together.labels.shape == (3, N) and together.energy.shape == (3,)
    for i in range(3):
        alone = SparseMRF(unary[i], EDGES, weights[i]).solve("mf", num_steps=5)
        assert torch.equal(together.labels[i], alone.labels)
        assert float(together.energy[i]) == pytest.approx(float(alone.energy), abs=1e-12)


def test_the_constant_is_in_the_energy():
    plain, moved = (SparseMRF(normal(N, L), EDGES, 1.0, constant=c).solve() for c in (0.0, -3.5))
    assert float(moved.energy) == pytest.approx(float(plain.energy) - 3.5)


def test_trace_tol_and_callback():
    seen = []
    found = model("weights").solve("l2fw", 20, tol=1e-6, trace=True, callback=lambda k, x: seen.append(k))
    assert found.converged
    assert seen == [r.k for r in found.trace]


def test_settings_of_the_solver():
    mrf = model("weights")
    by_name = mrf.solve("l2fw", 4, weight=0.3).probabilities
    made = mrf.solve(fwcrf.solvers.get("l2fw", weight=0.3), 4).probabilities
    assert torch.equal(by_name, made)
    with pytest.raises(ValueError, match="has no setting 'lambda_'"):
        mrf.solve("l2fw", lambda_=1.0)
    with pytest.raises(TypeError, match="weight with a solver object"):
        mrf.solve(fwcrf.solvers.get("l2fw"), weight=1.0)


def test_probabilities_are_differentiable_in_unary_and_potentials():
    def answer(unary, weight, matrix):
        mrf = SparseMRF(unary, EDGES, Full(matrix, weight))
        return mrf.solve("efw", num_steps=3, weight=0.5).probabilities

    inputs = [t.requires_grad_() for t in (normal(N, L), normal(M, seed=1), normal(L, L, seed=2))]
    assert torch.autograd.gradcheck(answer, inputs, fast_mode=True)


def test_numpy_and_lists_are_taken():
    unary, weights = normal(N, L).numpy(), np.arange(float(M))
    mrf = SparseMRF(unary, EDGES.tolist(), weights)
    assert torch.equal(mrf.tables(), SparseMRF(normal(N, L), EDGES, torch.arange(float(M))).tables())


def test_a_graph_without_edges():
    unary = normal(N, L)
    for pairwise in (1.0, torch.zeros(0), torch.zeros(0, L, L), torch.eye(L)):
        mrf = SparseMRF(unary, torch.zeros(0, 2, dtype=torch.int64), pairwise)
        assert torch.equal(mrf.solve(num_steps=3, restarts=1).labels, unary.argmin(-1))
        assert mrf.energy().pairwise.to_dense().abs().sum() == 0
    assert SparseMRF(unary, [], 1.0).num_edges == 0


def test_edges_between_the_same_nodes_add_up():
    T = normal(3, L, L, seed=2)
    twice = SparseMRF(normal(2, L), [[0, 1], [0, 1], [1, 0]], T)
    once = SparseMRF(normal(2, L), [[0, 1]], (T[0] + T[1] + T[2].mT)[None])
    assert torch.allclose(twice.energy().pairwise.to_dense(), once.energy().pairwise.to_dense())
    assert torch.allclose(twice.value(labellings(twice)), once.value(labellings(once)))
    assert torch.equal(twice.solve().labels, once.solve().labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_forbidden_pairs(dtype):
    """+inf in a table: the best labelling by enumeration is that of the finite energy."""
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        tables = torch.randn(M, L, L, generator=generator).to(dtype)
        tables[torch.rand(M, L, L, generator=generator) < 0.25] = torch.inf
        mrf = SparseMRF(normal(N, L, dtype=dtype, seed=seed), EDGES, tables)
        every = labellings(mrf)
        costs = mrf.value(every)
        finite = mrf.energy().of_labels(every[costs.argmin()])
        assert torch.isfinite(mrf.tables()).all()
        assert float(costs[0]) == pytest.approx(by_hand(mrf, every[0].tolist()), rel=1e-5)
        if torch.isfinite(costs.min()):
            seen = torch.stack([mrf.energy().of_labels(labels) for labels in every[::7]])
            assert float(finite) <= float(seen.min()) + 1e-4
            found = mrf.solve(restarts=30)
            assert float(found.energy) == pytest.approx(float(costs.min()), abs=1e-4)


def test_forbidden_pairs_of_a_shared_matrix():
    matrix = torch.ones(3, 3, dtype=torch.float64) - torch.eye(3)
    matrix[0, 2] = matrix[2, 0] = torch.inf
    mrf = SparseMRF(normal(N, L), EDGES, Full(matrix, torch.linspace(0.5, 1.5, M)))
    assert float(mrf.solve(restarts=30).energy) == pytest.approx(best(mrf), abs=1e-9)
    assert float(mrf.value(torch.tensor([0, 2, 0, 2, 0, 2]))) == torch.inf
    with pytest.raises(ValueError, match="expected weights above 0"):
        SparseMRF(normal(N, L), EDGES, Full(matrix, torch.linspace(-0.5, 1.5, M)))


def test_labels_of_different_numbers():
    unary = normal(3, 4)
    unary[1, 2:] = torch.inf
    mrf = SparseMRF(unary, [[0, 1], [1, 2]], 0.5, cardinalities=[4, 2, 4])
    assert mrf.solve().labels[1] < 2
    with pytest.raises(ValueError, match="exclude labels that unary allows"):
        SparseMRF(unary, [[0, 1]], 0.5, cardinalities=[4, 2, 3])
    with pytest.raises(ValueError, match="from 1 to 4"):
        SparseMRF(unary, [[0, 1]], 0.5, cardinalities=[4, 2, 5])


def nan_at(t, value=torch.nan):
    t = t.clone()
    t.view(-1)[0] = value
    return t


U, T = normal(4, 3), normal(2, 3, 3)
PAIRS = torch.tensor([[0, 1], [2, 3]])
BAD = {
    "out of range": (U, [[0, 1], [2, 4]], 1.0, ValueError, r"0 to 4; expected 0 to 3.*edge 1, \(2, 4\)"),
    "negative": (U, [[-1, 1]], 1.0, ValueError, "-1 to 1; expected 0 to 3"),
    "loop": (U, [[0, 1], [2, 2]], 1.0, ValueError, "edge 1 joins node 2 to itself.*belongs in the unary"),
    "transposed": (U, PAIRS[:1].expand(3, 2).mT, 1.0, ValueError, r"expected \(m, 2\).*Did you mean edges.T"),
    "flat": (U, [0, 1], 1.0, ValueError, r"edges has shape \(2,\)"),
    "float edges": (U, [[0.0, 1.0]], 1.0, TypeError, "edges has dtype torch.float32; expected integers"),
    "weights": (
        U,
        PAIRS,
        torch.ones(3),
        ValueError,
        r"shape \(3,\); expected .*\(2,\) for Potts",
    ),
    "tables": (U, PAIRS, torch.ones(3, 3, 3), ValueError, r"\(2, 3, 3\) for a table per edge"),
    "weights of a class": (U, PAIRS, Potts([1.0, 2.0, 3.0]), ValueError, r"expected a number, \(2,\)"),
    "matrix of a class": (U, PAIRS, Full(torch.ones(2, 2)), ValueError, r"expected \(3, 3\) for 3 labels"),
    "tables of a class": (
        U,
        PAIRS,
        Tables(torch.ones(2, 2, 2)),
        ValueError,
        r"expected \(\*batch, 2, 3, 3\)",
    ),
    "batch": (U, PAIRS, Potts(torch.ones(5, 2)), ValueError, r"batch of \(5,\) and unary one of \(\)"),
    "truncation": (U, PAIRS, TruncatedLinear(1.0, -1.0), ValueError, "expected one number, 0 or more"),
    "NaN unary": (nan_at(U), PAIRS, 1.0, ValueError, "unary has NaN"),
    "-inf unary": (nan_at(U, -torch.inf), PAIRS, 1.0, ValueError, "-inf entries"),
    "NaN weight": (U, PAIRS, torch.nan, ValueError, "the weight of the edges has 1 values that are NaN"),
    "infinite weight": (U, PAIRS, torch.inf, ValueError, "NaN or infinite"),
    "NaN table": (U, PAIRS, nan_at(T), ValueError, "tables has NaN or -inf"),
    "-inf table": (U, PAIRS, nan_at(T, -torch.inf), ValueError, "tables has NaN or -inf"),
    "NaN matrix": (U, PAIRS, nan_at(torch.eye(3)), ValueError, "the matrix over labels has NaN"),
    "integer unary": (U.long(), PAIRS, 1.0, TypeError, "expected float32 or float64"),
    "no labels": (torch.zeros(4, 0), PAIRS, 1.0, ValueError, r"none of them 0"),
    "flat unary": (torch.zeros(4), PAIRS, 1.0, ValueError, r"expected \(\*batch, n, labels\)"),
    "a word": (U, PAIRS, Potts("much"), TypeError, "expected numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(case):
    unary, edges, pairwise, error, message = BAD[case]
    with pytest.raises(error, match=message):
        SparseMRF(unary, edges, pairwise)


def test_more_nodes_than_can_be_numbered_are_refused():
    unary = torch.zeros(1, 1).expand(2**31, 1)
    with pytest.raises(ValueError, match="at most 2147483647 nodes"):
        SparseMRF(unary, [[0, 1]], 1.0)
    edges = torch.tensor([[0, 1]]).expand(2**30, 2)
    with pytest.raises(ValueError, match="and 1073741823 edges"):
        SparseMRF(U, edges, 1.0)


def test_labels_that_are_none():
    mrf = model("weights")
    with pytest.raises(ValueError, match="expected 0 to 2"):
        mrf.value(torch.full((N,), 3))
    with pytest.raises(ValueError, match="one label per node"):
        mrf.value(torch.zeros(N + 1, dtype=torch.int64))
    with pytest.raises(TypeError, match="expected integers"):
        mrf.value(torch.zeros(N))
    with pytest.raises(ValueError, match="constant=inf"):
        SparseMRF(U, PAIRS, 1.0, constant=torch.inf)
