"""Frank-Wolfe on one node after the other: both paths agree, no step raises the energy, exact gradients."""

import itertools

import pytest
import torch
from graph_models import BATCHED, EDGES, POTENTIALS, L, N, model
from helpers import normal

import fwcrf
from fwcrf.graphs import Potts, SparseMRF, grid
from fwcrf.graphs.sequential import wavefronts

NAMES = ("seq-mf", "seq-efw", "seq-anneal-fw")


def test_names():
    on_graphs = [name for name in fwcrf.solvers.names(graphs=True) if name not in fwcrf.solvers.names()]
    assert [name for name in on_graphs if not name.startswith("lp-")] == [*NAMES]


def one_by_one(mrf, weights, step):
    """x by its definition, from softmax(-u)."""
    P, u = mrf.energy().pairwise, mrf.unary
    x = torch.softmax(-u, -1)
    for weight in weights:
        for i in range(mrf.num_nodes):
            x = x.clone()
            x[i] += step * (torch.softmax(-(P(x) + u)[i] / weight, -1) - x[i])
    return x


@pytest.mark.parametrize("kind", POTENTIALS)
def test_steps_by_definition_in_both_paths(kind):
    mrf = model(kind)
    expected = one_by_one(mrf, [0.6] * 3, 0.8)
    assert torch.equal(
        mrf.solve("seq-mf", 4).probabilities, mrf.solve("seq-efw", 4, weight=1.0).probabilities
    )
    found = mrf.solve("seq-efw", 3, weight=0.6, step=0.8).probabilities
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    learned = SparseMRF(mrf.unary.clone().requires_grad_(), mrf.edges, mrf.pairwise)
    in_torch = learned.solve("seq-efw", 3, weight=0.6, step=0.8).probabilities
    assert in_torch.requires_grad
    torch.testing.assert_close(in_torch, expected, rtol=0, atol=1e-12)
    falling, scale = [2.0, 1.25, 0.5], fwcrf.graphs.native.native_models(mrf)[0].typical_cost()
    annealed = mrf.solve("seq-anneal-fw", 3, steps=3, start=2.0, end=0.5).probabilities
    torch.testing.assert_close(
        annealed, one_by_one(mrf, [scale * w for w in falling], 1.0), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("kind", BATCHED)
@pytest.mark.parametrize("name", NAMES)
def test_batches(kind, name):
    mrf = SparseMRF(normal(2, N, L), EDGES, BATCHED[kind]())
    found = mrf.solve(name, 3).probabilities
    for k in range(2):
        tables = mrf.tables().expand(2, -1, -1, -1)[k]
        alone = SparseMRF(mrf.unary[k], EDGES, tables).solve(name, 3).probabilities
        torch.testing.assert_close(found[k], alone, rtol=0, atol=1e-10)
    learned = SparseMRF(mrf.unary.clone().requires_grad_(), EDGES, BATCHED[kind]())
    torch.testing.assert_close(learned.solve(name, 3).probabilities, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["weights", "asymmetric matrix", "tables"])
def test_gradients_of_first_and_second_order(kind):
    costs = {
        "weights": normal(8, seed=1),
        "asymmetric matrix": normal(2, 2, seed=1),
        "tables": normal(8, 2, 2, seed=1),
    }

    def x(u, potential, weight):
        make = {"weights": Potts}.get(
            kind, fwcrf.graphs.Full if kind == "asymmetric matrix" else fwcrf.graphs.Tables
        )
        solver = fwcrf.solvers.get("seq-efw", weight=weight)
        return SparseMRF(u, EDGES, make(potential)).solve(solver, 2, "nearest").probabilities

    inputs = (normal(N, 2), costs[kind], torch.tensor(0.7).double())
    inputs = tuple(t.requires_grad_() for t in inputs)
    assert torch.autograd.gradcheck(x, inputs)
    assert torch.autograd.gradgradcheck(x, inputs)


@pytest.mark.parametrize("step", [1.0, 0.5])
def test_no_step_raises_the_regularized_energy_where_simultaneous_steps_oscillate(step):
    edges, _ = grid((8, 8))
    mrf = SparseMRF(0.1 * normal(64, 2), edges, Potts(2 * normal(len(edges), seed=1)))
    values = [float(r.value) for r in mrf.solve("seq-mf", 30, step=step, trace=True).trace]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(values))
    assert values[-1] - values[-2] > -1e-3
    both = [float(r.value) for r in mrf.solve("mf", 30, trace=True).trace]
    assert any(after > before + 1.0 for before, after in itertools.pairwise(both))
    assert values[-1] < both[-1]


def test_levels_keep_the_order():
    edges, _ = grid((4, 5))
    mrf = SparseMRF(normal(20, 2), edges, 1.0)
    graph = mrf.energy().pairwise.graph
    levels = wavefronts(graph)
    assert len(levels) == 4 + 5 - 1
    depth = torch.empty(20, dtype=torch.int64)
    for k, level in enumerate(levels):
        depth[level.nodes] = k
    i, j = graph.edges.long().sort(-1).values.T
    assert bool((depth[i] < depth[j]).all())
    assert sum(len(level.edge) for level in levels) == 2 * len(edges)


def test_forbidden_labels_and_refusals():
    u = normal(N, 3)
    u[2, 1] = torch.inf
    mrf = SparseMRF(u, EDGES, 0.5)
    for name in NAMES:
        found = mrf.solve(name, 5)
        assert float(found.probabilities[2, 1]) == 0 and torch.isfinite(found.energy)
    with pytest.raises(TypeError, match=r"expected SparseMRF\(...\).solve\('seq-mf'\)"):
        fwcrf.minimize(
            fwcrf.Energy(fwcrf.pairwise.Matrix(torch.eye(4), 2), torch.zeros(2, 2)), "seq-mf", num_steps=1
        )
    with pytest.raises(ValueError, match="steps=0; expected"):
        mrf.solve("seq-anneal-fw", steps=0)
