import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from problems import PROBLEMS, L, N, best, feasible, kernel_energy, matrix_energy, start

import fwcrf
from fwcrf import rounding
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.pairwise import of_image


def flips(E, labels):
    """E after each possible change of one label, relative to E."""
    now = E.of_labels(labels)
    for i in range(labels.shape[-1]):
        for s in range(E.unary.shape[-1]):
            other = labels.clone()
            other[..., i] = s
            yield (E.of_labels(other) - now).min()


@pytest.fixture(params=["one by one", "together"])
def bcd(request, monkeypatch):
    if request.param == "together":
        monkeypatch.setattr(rounding, "_SMALL", 0)
    return rounding.bcd


@given(st.integers(0, 10_000), st.booleans())
def test_bcd_never_raises_the_energy_and_no_flip_lowers_it(seed, small):
    E, x = matrix_energy(seed), feasible(N, L, seed=seed + 1)
    labels = rounding._one_by_one(E, x, 100) if small else rounding._together(E, x, 200, seed=0)
    assert E.of_labels(labels) <= E.value(x) + 1e-9
    assert all(change >= -1e-9 for change in flips(E, labels))
    assert E.of_labels(labels) >= best(E) - 1e-9


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_bcd_never_raises_the_energy_of_labels(bcd, problem):
    E = problem()
    for seed in range(20):
        labels = torch.randint(0, L, (N,), generator=torch.Generator().manual_seed(seed))
        x = torch.nn.functional.one_hot(labels, L).double()
        assert E.of_labels(bcd(E, x)) <= E.of_labels(labels) + 1e-9


def test_bcd_of_a_batch_is_that_of_its_images(bcd):
    E = matrix_energy(3, batch=(4,))
    x = start(E)
    labels = bcd(E, x)
    assert labels.shape == (4, N)
    assert (E.of_labels(labels) <= E.value(x) + 1e-9).all()
    assert all(change >= -1e-9 for change in flips(E, labels))


def test_bcd_respects_hard_constraints(bcd):
    E = kernel_energy(3)
    unary = E.unary.clone()
    unary[:, 0] -= 5
    unary[2, 0] = unary[4, 0] = unary[4, 1] = torch.inf
    E = fwcrf.Energy(E.pairwise, unary)
    labels = bcd(E, start(E))
    assert labels[2] != 0
    assert labels[4] == 2
    assert torch.isfinite(E.of_labels(labels))


def test_bcd_is_reproducible_and_leaves_its_input_alone(bcd):
    E = matrix_energy(8, n=40)
    x = start(E)
    before = x.clone()
    assert torch.equal(bcd(E, x), bcd(E, x))
    assert torch.equal(x, before)


def test_nodes_that_disturb_each_other_are_separated():
    """Two labels that repel: moving all nodes at once would only swap them."""
    n = 400
    E = fwcrf.Energy(
        fwcrf.pairwise.Matrix(torch.kron(1 - torch.eye(n), torch.eye(2)).double(), 2), normal(n, 2) * 0.01
    )
    x = torch.zeros(n, 2, dtype=torch.float64)
    x[:, 0] = 1.0
    labels = rounding._together(E, x, 200, seed=0)
    assert (labels == 0).sum() == n // 2
    assert E.of_labels(labels) < 0.6 * E.value(x)


def test_few_applications_leave_labels_all_the_same():
    E = matrix_energy(8, n=40)
    x = start(E)
    labels = rounding._together(E, x, 2, seed=0)
    assert E.of_labels(labels) <= E.value(x) + 1e-9


def test_bcd_on_an_image_lowers_what_nearest_finds():
    picture = (uniform_image() * 255).to(torch.uint8)
    P = of_image([Bilateral(xy=10, color=40, weight=3.0), Spatial(xy=2)], picture, 4)
    E = fwcrf.Energy(P, normal(40 * 50, 4, dtype=torch.float32))
    x = fwcrf.minimize(E, "mf", num_steps=2).probabilities
    assert E.unary.numel() > rounding._SMALL
    assert E.of_labels(rounding.bcd(E, x)) < E.of_labels(rounding.nearest(x))


def uniform_image():
    ramp = torch.linspace(0, 1, 50).expand(3, 40, 50)
    return (ramp + 0.05 * normal(3, 40, 50, dtype=torch.float32)).clamp(0, 1)


def test_names():
    assert rounding.get("bcd") is rounding.bcd
    with pytest.raises(ValueError, match="expected nearest, bcd, merge or a function"):
        rounding.get("random")
