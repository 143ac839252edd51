"""Projected and proximal gradient, FISTA, mirror descent and ADMM against their updates written out."""

import math

import numpy as np
import pytest
import torch
from problems import PROBLEMS, kernel_energy, matrix_energy, start
from torch.testing import assert_close

import fwcrf
from fwcrf.solvers.plan import Refusal, as_updates
from fwcrf.stepsizes import Harmonic, LineSearch
from fwcrf.torch_ops.simplex import project_onto_simplex

STEPS = 6


def solve(E, name, num_steps=STEPS, **settings):
    return fwcrf.minimize(E, fwcrf.solvers.get(name, **settings), num_steps=num_steps).probabilities


@pytest.fixture(params=["potts", "matrix"])
def E(request):
    return PROBLEMS[request.param](batch=(2,))


def test_projected_gradient(E):
    x = start(E)
    for k in range(STEPS):
        x = x + 2 / (k + 2) * (project_onto_simplex(x - E.grad(x)) - x)
    assert_close(solve(E, "pgd", step=Harmonic()), x)


def test_proximal_gradient(E):
    x = start(E)
    for _ in range(STEPS):
        x = project_onto_simplex(x - 0.3 * E.grad(x))
    assert_close(solve(E, "pgm", step=0.3), x)


def test_projected_gradient_with_line_search_falls_along_its_segments(E):
    trace = fwcrf.minimize(E, fwcrf.solvers.get("pgd", step=LineSearch()), num_steps=10, trace=True).trace
    values = torch.stack([record.energy for record in trace])
    assert (values[1:] <= values[:-1] + 1e-12).all()
    assert (values[-1] < values[0] - 0.1).all()


def test_entropic_descent_with_the_epsilon_of_the_paper():
    """The stabilised update in numpy, on unaries under which labels underflow and return."""
    E = kernel_energy(3)
    E = fwcrf.Energy(8 * E.pairwise, 400 * E.unary)
    P, u = E.pairwise.to_dense().numpy(), E.unary.numpy()
    x = start(E).numpy()
    for _ in range(STEPS):
        g = (P @ x.ravel()).reshape(x.shape) + u
        y = (x + 1e-10) * np.exp(-0.7 * g + 0.7 * g.min(-1, keepdims=True))
        x = y / y.sum(-1, keepdims=True)
    assert_close(solve(E, "emd", step=0.7, epsilon=1e-10), torch.from_numpy(x), rtol=1e-9, atol=1e-14)


def test_epsilon_lets_a_label_return():
    """A start without label 0, which the unary asks for: the default starts from the least number instead."""
    E = kernel_energy(3)
    u = torch.zeros_like(E.unary)
    u[:, 0] = -12.0
    E, x0 = fwcrf.Energy(E.pairwise, u), torch.tensor([0.0, 0.5, 0.5]).double().expand_as(u)
    share = [
        fwcrf.minimize(E, fwcrf.solvers.get("emd", **more), x0, num_steps=6).probabilities[:, 0].min()
        for more in ({}, {"epsilon": 1e-10})
    ]
    assert share[0] < 1e-100 and share[1] > 0.99


def test_the_engine_leaves_epsilon_to_single_steps():
    assert len(as_updates(fwcrf.solvers.get("emd"), 2)) == 2
    refusal = as_updates(fwcrf.solvers.get("emd", epsilon=1e-10), 2)
    assert isinstance(refusal, Refusal) and "epsilon" in str(refusal)
    with pytest.raises(ValueError, match=r"epsilon=-1.0; expected"):
        fwcrf.solvers.get("emd", epsilon=-1.0)


def test_fista(E):
    x = y = start(E)
    t = 1.0
    for _ in range(STEPS):
        new = project_onto_simplex(y - 0.2 * E.grad(y))
        t, last = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
        y = new + (last - 1) / t * (new - x)
        x = new
    assert_close(solve(E, "fista", step=0.2), x)


def test_entropic_mirror_descent(E):
    x = start(E)
    for _ in range(STEPS):
        x = x * torch.exp(-0.5 * E.grad(x))
        x = x / x.sum(-1, keepdim=True)
    assert_close(solve(E, "emd", step=0.5), x)


def test_entropic_mirror_descent_recovers_labels_that_are_less_than_the_smallest_number():
    """The start prefers label 1 by 200, beyond float32; the neighbours in the end prefer label 0."""
    unary = torch.tensor([[200.0, 0.0], [0.0, 0.0]])
    E = fwcrf.Energy(kernel_energy(0, n=2).pairwise * 0.0, torch.cat([unary, torch.zeros(2, 1)], -1))
    solver = fwcrf.solvers.get("emd")
    state = solver.init(E, torch.tensor([[0.0, 1.0, 0.0], [0.3, 0.3, 0.4]]))
    opposite = fwcrf.Energy(E.pairwise, -E.unary)
    for k in range(3):
        state = solver.step(opposite, state, k)
    assert state.x[0, 0] > 0.99


@pytest.mark.parametrize("name", ["admm", "bregman-admm"])
def test_admm_counts_half_steps(E, name):
    rho = 0.8

    def near(c, z):
        if name == "admm":
            return project_onto_simplex(z - c / rho)
        return torch.softmax(z.log() - c / rho, -1)

    z, y = start(E), torch.zeros_like(E.unary)
    seen = [z]
    for _ in range(2):
        x = near(y + 0.5 * E.pairwise(z) + E.unary, z)
        z = near(-y + 0.5 * E.pairwise(x), x)
        y = y + rho * (x - z)
        seen += [x, z]
    mine = []
    fwcrf.minimize(E, fwcrf.solvers.get(name, rho=rho), num_steps=4, callback=lambda k, x: mine.append(x))
    for one, other in zip(mine, seen, strict=True):
        # A projection leaves zeros, whose logarithm the library takes of the smallest number instead.
        assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_every_step_applies_the_pairwise_operator_once():
    for name in ("pgd", "pgm", "fista", "emd", "admm", "bregman-admm"):
        trace = fwcrf.minimize(matrix_energy(), name, num_steps=5, trace=True).trace
        assert [record.applications for record in trace] == [0, 1, 2, 3, 4, 5]
