"""Many labels, and label maps with one large value."""

import numpy as np
import pytest
import torch
from refine_scenes import photograph

import fwcrf
from fwcrf import refinement, solvers
from fwcrf.compatibility import Potts
from fwcrf.kernels import Exact
from fwcrf.pairwise import dense

IMAGE = photograph(6, 8)


def test_a_void_value_of_16_bits_is_refused_with_its_remedy():
    labels = np.random.default_rng(0).integers(0, 5, (6, 8)).astype(np.uint16)
    labels[2, 3] = 65535
    with pytest.raises(
        ValueError, match=r"6 labels, up to 65535.*np\.where\(labels == 65535, -1.*np\.unique"
    ):
        fwcrf.refine(IMAGE, labels, from_labels=True)
    void = np.where(labels == 65535, -1, labels.astype(int))
    assert fwcrf.refine(IMAGE, void, from_labels=True).max() < 5


@pytest.mark.parametrize("high", [255, 300, 26001])
def test_a_few_labels_with_large_numbers_are_refused(high):
    labels = torch.tensor([[0, 1], [1, high]])
    with pytest.raises(ValueError, match=rf"up to {high}.*labels == {high}, -1.*num_labels={high + 1}"):
        fwcrf.refine(torch.rand(3, 2, 2) * 255, labels, from_labels=True)


def test_many_labels_that_occur_are_taken():
    labels = np.arange(400).reshape(20, 20)
    found = fwcrf.refine(photograph(20, 20), labels, from_labels=0.85, num_steps=1)
    assert found.shape == (20, 20) and found.max() < 400


def test_potts_makes_no_matrix_over_labels():
    """A matrix over 70,000 labels would take 20 GB."""
    p = torch.rand(70_000, 3, 3) + 0.1
    found = fwcrf.refine(photograph(3, 3), (p / p.sum(0)).movedim(0, -1).numpy(), num_steps=2)
    assert found.shape == (3, 3)
    P = dense([Exact(torch.rand(9, 2))], 70_000)
    assert P.absolute_row_sums(70_000).shape == (9, 70_000)


@pytest.mark.parametrize("name", [name for name in solvers.names() if not name.startswith("lp-")])
def test_every_solver_takes_many_labels(name, monkeypatch):
    monkeypatch.delattr(Potts, "matrix")
    p = torch.rand(3, 3, 70_000, generator=torch.Generator().manual_seed(0)) + 0.1
    likely = (p / p.sum(-1, keepdim=True)).numpy()
    kernels, image = [fwcrf.kernels.Spatial()], photograph(3, 3)
    _, found = fwcrf.refine(
        image, likely, solver=name, num_steps=1, kernels=kernels, return_probabilities=True
    )
    assert np.abs(found.sum(-1, dtype=np.float64) - 1).max() < 1e-3


def test_splits_with_a_weight_per_label_make_no_matrix_either(monkeypatch):
    monkeypatch.delattr(Potts, "matrix")
    E = fwcrf.Energy(
        dense([Exact(torch.rand(9, 2))], 70_000, weights=[torch.rand(70_000)]), torch.rand(9, 70_000)
    )
    for name in ("convex-fw", "cccp-qp1", "cmf2"):
        assert torch.isfinite(fwcrf.minimize(E, name, num_steps=1).probabilities).all()


@pytest.mark.parametrize(
    "weight", [-1.5, [0.3, -2.0, 1.0, 0.3], [-1.0, -2.0, -0.5, 0.0], [2.0, -2.0, 1.0, -1.0]]
)
def test_absolute_row_sums_of_potts_are_those_of_its_matrix(weight):
    P = dense([Exact(torch.rand(5, 2))], 4, weights=[torch.tensor(weight)])
    expected = P.to_dense().abs().sum(-1).view(5, 4)
    torch.testing.assert_close(P.absolute_row_sums(4), expected)


@pytest.mark.parametrize("tile", [{}, {"tile": False}, {"tile": 4, "overlap": 0}])
def test_more_than_the_machine_has_is_refused(monkeypatch, tile):
    monkeypatch.setattr(refinement, "_NOTICED", 0)
    monkeypatch.setattr(refinement, "MEMORY", 1 << 20)  # or the image is too small to be looked at
    monkeypatch.setattr(refinement, "available_memory", lambda: 1000)
    with pytest.raises(
        MemoryError, match=r"3 labels of \d+ pixels take about \d+ bytes.*this machine has 1000"
    ):
        fwcrf.refine(IMAGE, np.full((6, 8, 3), 1 / 3, np.float32), **tile)


def test_the_memory_of_this_machine_is_known():
    there = refinement.available_memory()
    assert there is None or 1 << 20 < there < 1 << 50
