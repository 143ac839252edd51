import pytest
import torch
from torch.testing import assert_close

import fwcrf
from fwcrf.kernels import Exact
from fwcrf.pairwise import dense
from fwcrf.regularizers import Entropy, Simplex, SquaredL2
from fwcrf.torch_ops.simplex import project_onto_simplex

N, L = 6, 3
DTYPE = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)


@pytest.fixture
def energy():
    return fwcrf.Energy(dense([Exact(random(N, 2))], L), random(N, L, seed=1))


@pytest.fixture
def start(energy):
    return torch.softmax(-energy.unary, -1)


def solve(energy, start, name, steps, **settings):
    solver = fwcrf.solvers.get(name, **settings)
    return fwcrf.minimize(energy, solver, start, num_steps=steps).probabilities


def test_one_full_step_gives_the_same_labels_whatever_the_regularizer(energy, start):
    settings = [
        ("mf", {}),
        ("fw", {}),
        ("efw", {"weight": 0.1}),
        ("l2fw", {"weight": 3.0}),
        ("tsallis-fw", {"alpha": 1.3}),
        ("mixed-fw", {}),
        ("binary-entropy-fw", {}),
        ("lp-fw", {}),
    ]
    answers = [
        fwcrf.rounding.nearest(solve(energy, start, name, 1, step=1.0, **more)) for name, more in settings
    ]
    expected = (-energy.grad(start)).argmax(-1)
    for labels in answers:
        assert torch.equal(labels, expected)


def test_mean_field_is_entropic_frank_wolfe_to_the_last_bit(energy, start):
    assert torch.equal(solve(energy, start, "mf", 5), solve(energy, start, "efw", 5, weight=1.0, step=1.0))


def test_mean_field_is_the_known_update(energy, start):
    x = start
    for _ in range(4):
        x = torch.softmax(-energy.pairwise(x) - energy.unary, -1)
    assert_close(solve(energy, start, "mf", 4), x)


@pytest.mark.parametrize("g", [Simplex(), Entropy(0.4), SquaredL2(1.3)], ids=lambda g: type(g).__name__)
def test_oracle_beats_feasible_points_and_ignores_constants(g):
    c = random(4, L)
    p = g.argmin(c)
    value = (c * p).sum() + g.value(p)
    for seed in range(200):
        q = torch.softmax(3 * random(4, L, seed=seed), -1)
        assert value <= (c * q).sum() + g.value(q) + 1e-12
    assert_close(g.argmin(c + 7.5), p)


def test_projection_onto_the_simplex_solves_its_conditions():
    v = random(50, 7)
    p = project_onto_simplex(v)
    support = p > 0
    assert_close(p.sum(-1), torch.ones(50, dtype=DTYPE))
    threshold = (v - p)[support]
    row = support.nonzero()[:, 0]
    for i in range(50):
        tau = threshold[row == i]
        assert (tau.max() - tau.min()) < 1e-12
        assert (v[i][~support[i]] <= tau[0] + 1e-12).all()
