"""Lattices of more features than the native build takes: the same lattice, made in numpy."""

import dropin_cases as cases
import numpy as np
import pytest
import torch

import fwcrf
from fwcrf.kernels import Lattice
from fwcrf.pydensecrf import densecrf, wide
from fwcrf.torch_ops.lattice import build_native


def points(n, d, far):
    features = np.random.default_rng(d).uniform(-far, far, (n, d)).astype(np.float32)
    features[: n // 4] = np.round(features[: n // 4])  # on borders of simplices
    features[n // 2] = features[0]
    return features


@pytest.mark.parametrize("far", [2.0, 3e5], ids=["float32", "float64"])
@pytest.mark.parametrize("d", [1, 2, 5, 13, 16])
def test_both_builds_make_the_same_lattice(d, far):
    features = points(120, d, far)
    index, weight, order, neighbors = build_native(
        torch.from_numpy(features)[None], wide.scales(d), single_within=2**15
    )
    found = wide.build(features, wide.scales(d), 2**15)
    np.testing.assert_array_equal(found.weight, weight[0])
    assert found.neighbors.shape == neighbors.shape
    native = Lattice(index[0], weight[0], weight[0], order[0], neighbors, blur="forward")
    ours = Lattice(*map(torch.from_numpy, (found.index, found.weight, found.weight)), order[0],
                   torch.from_numpy(found.neighbors), blur="forward")  # fmt: skip
    assert torch.equal(ours.to_dense(), native.to_dense())


def test_vertices_of_one_hash_are_told_apart(monkeypatch):
    """The first attempt gets a first hash that is 0 for all vertices."""

    class Zeros:
        def __init__(self):
            self.drawn = [np.zeros(6, np.uint64), np.arange(6, dtype=np.uint64) ** 9]

        def integers(self, *_, **__):
            return self.drawn.pop(0)

    features = points(40, 4, 2.0)
    expected = wide.build(features, wide.scales(4), 2**15)
    seeds, draw = [], np.random.default_rng
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed: seeds.append(seed) or (draw(seed) if seed else Zeros())
    )
    found = wide.build(features, wide.scales(4), 2**15)
    assert seeds == [0, 1] and found.neighbors.shape == expected.neighbors.shape


@pytest.mark.parametrize("solver", ["mf", "l2fw", "anneal-fw", "convex-fw", "cccp-qp1", "pgm"])
def test_any_solver_takes_a_model_with_many_features(solver):
    energies, features = cases.random_points(3, 60, 20, 3)
    crf = densecrf.DenseCRF(60, 3)
    crf.setUnaryEnergy(energies)
    crf.addPairwiseEnergy(features / np.float32(4), 3)
    crf.addPairwiseEnergy(features / np.float32(3), np.eye(3, dtype=np.float32))
    x = np.array(crf.inference(4, solver=solver))
    np.testing.assert_allclose(x.sum(0), 1, rtol=1e-4)
    single = fwcrf.minimize(crf.energy(), solver, num_steps=4, callback=lambda k, x: None).probabilities
    np.testing.assert_allclose(x, single.T, rtol=0, atol=1e-5)


@pytest.mark.parametrize("d", [17, 32, 64])
def test_many_features_are_filtered_as_by_pydensecrf(d):
    theirs = pytest.importorskip("pydensecrf.densecrf", reason="make .venv/.peers installs it")
    energies, features = cases.random_points(d, 200, d, 3)
    found = []
    for module in (densecrf, theirs):
        crf = module.DenseCRF(200, 3)
        crf.setUnaryEnergy(energies)
        crf.addPairwiseEnergy(features / np.float32(d**0.5), 5)
        found.append(np.array(crf.inference(5)))
    np.testing.assert_allclose(*found, rtol=0, atol=1e-5)
    without = np.exp(-energies) / np.exp(-energies).sum(0)
    assert np.abs(found[1] - without).max() > 0.1
