"""Models whose best labelling is known: trees, cuts, a competition's; and three ways to one model."""

import json

import numpy as np
import pytest
import torch
from graph_models import best
from helpers import LATTICE_ERROR, normal, points
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from shared_data import ROOT, needs

import fwcrf
from fwcrf.graphs import Potts, SparseMRF, grid
from fwcrf.kernels import Exact, Lattice
from fwcrf.pairwise import dense


def tree_optimum(mrf):
    """The least energy of a tree whose edges lead to children of larger number, by messages to the root."""
    cost, tables = mrf.unary.clone(), mrf.tables()
    for e in reversed(range(mrf.num_edges)):
        parent, child = mrf.edges[e].tolist()
        cost[parent] += (tables[e] + cost[child]).amin(-1)
    return float(cost[0].min())


@pytest.mark.parametrize("seed", range(3))
def test_trees(seed):
    n, labels = 40, 4
    generator = torch.Generator().manual_seed(seed)
    parents = [int(torch.randint(0, i, (), generator=generator)) for i in range(1, n)]
    edges = torch.tensor(list(zip(parents, range(1, n), strict=True)))
    # Children after all who may be their parents, so that messages go from the last edge to the first.
    mrf = SparseMRF(normal(n, labels, seed=seed), edges, normal(n - 1, labels, labels, seed=seed + 1))
    optimum = tree_optimum(mrf)
    small = SparseMRF(mrf.unary[:7, :3], edges[:6], mrf.tables()[:6, :3, :3])
    assert tree_optimum(small) == pytest.approx(best(small), abs=1e-9)
    found = float(mrf.solve("mf", 30, restarts=100).energy)
    assert found == pytest.approx(optimum, abs=1e-9)


def cut_optimum(unary, edges, weights):
    """The least energy of a binary Potts model, weights at least 0, by the largest flow of whole numbers."""
    n = len(unary)
    low = unary.min(1)
    to_sink, from_source = (np.rint((unary[:, s] - low) * 1e6) for s in (0, 1))
    i, j = edges.T
    w = np.rint(weights * 1e6)
    # maximum_flow of scipy 1.11 takes 32-bit indices only.
    rows = np.concatenate([np.full(n, n), np.arange(n), i, j]).astype(np.int32)
    columns = np.concatenate([np.arange(n), np.full(n, n + 1), j, i]).astype(np.int32)
    capacity = np.concatenate([from_source, to_sink, w, w]).astype(np.int32)
    graph = coo_array((capacity, (rows, columns)), shape=(n + 2, n + 2)).tocsr()
    return low.sum() + maximum_flow(graph, n, n + 1).flow_value / 1e6


def test_submodular_binary_models_against_maximum_flow():
    gaps = []
    for seed in range(4):
        edges, _ = grid((12, 12))
        weights = normal(len(edges), seed=seed).abs() * 0.5
        mrf = SparseMRF(normal(144, 2, seed=seed + 1), edges, weights)
        optimum = cut_optimum(mrf.unary.numpy(), edges.numpy(), weights.numpy())
        found = float(mrf.solve("l2fw", 50, restarts=50).energy)
        assert found >= optimum - 1e-3
        gaps.append(found - optimum)
        for name in ("mf", "efw", "convex-fw"):
            assert float(mrf.solve(name, 20).energy) >= optimum - 1e-3
    assert max(gaps) < 1e-3  # the flow is of numbers rounded to 1e-6


def test_dense_sparse_and_lattice_agree():
    """A Gaussian kernel over 60 points, as a matrix of all pairs, as edges, and by the lattice."""
    features = points(60, 2)
    exact = dense([Exact(features)], 3)
    edges = torch.combinations(torch.arange(60))
    weights = (-0.5 * (features[edges[:, 0]] - features[edges[:, 1]]).square().sum(-1)).exp()
    unary = 3 * normal(60, 3)
    E, sparse = fwcrf.Energy(exact, unary), SparseMRF(unary, edges, Potts(weights))
    x = torch.softmax(normal(60, 3, seed=4), -1)
    assert torch.allclose(sparse.energy().grad(x), E.grad(x), rtol=0, atol=1e-12)
    assert torch.allclose(sparse.energy().pairwise.to_dense(), exact.to_dense(), rtol=0, atol=1e-13)
    for solver in ("mf", "l2fw", "fw"):
        ours = sparse.solve(solver, 10, "nearest").probabilities
        assert torch.allclose(ours, fwcrf.minimize(E, solver, num_steps=10).probabilities, atol=1e-9)
    lattice = dense([Lattice.build(features)], 3)
    y = exact(x)
    assert (lattice(x) - sparse.energy().pairwise(x)).norm() <= LATTICE_ERROR["none"] * y.norm()


def instance(name):
    with np.load(ROOT / "mrf" / f"{name}.npz") as file:
        given = {key: file[key] for key in file.files}
    pairwise = given["potts_weight"] if "potts_weight" in given else given["pairwise"]
    unary = torch.from_numpy(given["unary"]).double()
    mrf = SparseMRF(
        unary, given["edges"], torch.from_numpy(pairwise).double(), constant=float(given["constant"])
    )
    return mrf, torch.from_numpy(given["best_labeling"]).long()


NAMES = [*(f"Segmentation_{i}" for i in (11, 13, 14, 15, 17, 18, 20)), "Grids_26", "Grids_28"]


@needs("mrf")
@pytest.mark.parametrize("name", NAMES)
def test_instances_with_a_known_optimum(name):
    known = json.loads((ROOT / "mrf" / "instances.json").read_text())[name]
    mrf, labels = instance(name)
    optimum = float(mrf.value(labels))
    assert optimum == pytest.approx(known["best_energy"], rel=1e-6)
    found = float(mrf.solve("l2fw", 50, restarts=200).energy)
    assert found >= known["lower_bound"] - 1e-6 * abs(optimum)
    assert found <= optimum + (0.015 if name.startswith("Grids") else 1e-9) * abs(optimum)
