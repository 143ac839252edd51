"""Steps that the native engine takes at once end where the solver's own steps do."""

import pytest
import torch
from helpers import DTYPES, normal, uniform

import fwcrf
from fwcrf import Energy, solvers, stepsizes
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.moves import Move, possible
from fwcrf.pairwise import of_image

STEPS = 5
SOLVERS = {
    "mf": solvers.get("mf"),
    "efw": solvers.get("efw"),
    "l2fw": solvers.get("l2fw"),
    "l2fw, half steps": solvers.get("l2fw", weight=0.5, step=0.5),
    "efw, given steps": solvers.get("efw", step=[1.0, 0.7, 0.3]),
    "fw": solvers.get("fw"),
    "pgd": solvers.get("pgd"),
    "pgd, falling": solvers.get("pgd", step=stepsizes.Harmonic()),
    "pgm": solvers.get("pgm", step=0.4),
    "emd": solvers.get("emd"),
    "emd, falling": solvers.get("emd", step=stepsizes.Harmonic()),
    "admm": solvers.get("admm"),
    "admm, closer": solvers.get("admm", rho=3.0),
}
COMPATS = {"potts": 1.0, "full": lambda L: normal(L, L, seed=6)}


def energy(labels, *, grid=(13, 18), dtype=torch.float64, batch=(), compat=1.0, spread=2.0, weights=None):
    kernels = [Bilateral(6.0, 0.3), Spatial(1.5)]
    picture = uniform(*batch, 3, *grid, dtype=dtype)
    compat = compat(labels) if callable(compat) else compat
    P = of_image(kernels, picture, labels, compat=compat, weights=weights)
    return Energy(P, spread * normal(*batch, grid[0] * grid[1], labels, dtype=dtype, seed=3))


def at_once(E, solver, x0=None, num_steps=STEPS):
    assert solver.moves(num_steps) is not None
    return fwcrf.minimize(E, solver, x0, num_steps=num_steps).probabilities


def one_by_one(E, solver, x0=None, num_steps=STEPS):
    return fwcrf.minimize(E, solver, x0, num_steps=num_steps, callback=lambda k, x: None).probabilities


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_same_end(solver, compat, dtype):
    E = energy(4, dtype=dtype, compat=compat)
    atol = 1e-11 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(at_once(E, solver), one_by_one(E, solver), rtol=0, atol=atol)


@pytest.mark.parametrize("labels", [1, 2, 3, 7, 8, 9, 16])
@pytest.mark.parametrize("solver", ["mf", "l2fw", "fw", "emd", "admm"])
def test_any_number_of_labels(solver, labels):
    E, solver = energy(labels), SOLVERS[solver]
    torch.testing.assert_close(at_once(E, solver), one_by_one(E, solver), rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("labels", [17, 33, 65, 150])
@pytest.mark.parametrize("solver", ["mf", "l2fw", "l2fw, half steps", "fw", "pgd", "pgd, falling", "emd"])
def test_more_labels_than_registers_hold(solver, labels, dtype):
    E, solver = energy(labels, batch=(2,), dtype=dtype), SOLVERS[solver]
    E.unary[0, ::5, labels // 2] = torch.inf
    atol = 1e-11 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(at_once(E, solver), one_by_one(E, solver), rtol=0, atol=atol)


def test_many_labels_are_taken_at_once_and_on_any_number_of_threads(monkeypatch):
    E = energy(70, grid=(40, 50), dtype=torch.float32)
    x0 = torch.softmax(-E.unary, -1)
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("fwcrf.fused.threads_for", lambda work, threads=threads: threads)
        found.append(E.pairwise.moved(x0, E.unary, SOLVERS["mf"].moves(STEPS)))
    assert all(x is not None for x in found)
    for x in found[1:]:
        torch.testing.assert_close(x, found[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 7])
@pytest.mark.parametrize("solver", ["l2fw", "emd", "admm"])
def test_any_number_of_steps(solver, num_steps):
    E, solver = energy(5), SOLVERS[solver]
    found, expected = (run(E, solver, num_steps=num_steps) for run in (at_once, one_by_one))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_batches_and_the_start_are_kept():
    E, solver = energy(4, batch=(3,)), SOLVERS["mf"]
    x0 = torch.softmax(normal(3, 13 * 18, 4, seed=9), -1)
    kept = x0.clone()
    torch.testing.assert_close(at_once(E, solver, x0), one_by_one(E, solver, x0), rtol=0, atol=1e-11)
    assert torch.equal(x0, kept)


@pytest.mark.parametrize("solver", ["mf", "l2fw", "fw", "pgd", "pgm", "emd", "admm"])
def test_forbidden_labels_stay_at_zero(solver):
    E = energy(4)
    E.unary[::3, 1] = torch.inf
    found = at_once(E, SOLVERS[solver])
    assert (found[::3, 1] == 0).all()
    torch.testing.assert_close(found, one_by_one(E, SOLVERS[solver]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(threads, monkeypatch):
    E = energy(5, grid=(60, 70), dtype=torch.float32)
    monkeypatch.setattr("fwcrf.fused.threads_for", lambda work: threads)
    found = at_once(E, SOLVERS["efw"])
    torch.testing.assert_close(found, one_by_one(E, SOLVERS["efw"]), rtol=0, atol=1e-5)


# --- labels that cannot come up ------------------------------------------------------------------


@pytest.fixture
def pruned(monkeypatch):
    """The numbers of labels that native runs had, with pruning for arrays of any size."""
    monkeypatch.setattr("fwcrf.moves.LARGE", 0)
    seen = []
    run = fwcrf.fused.Fused.run
    monkeypatch.setattr(
        "fwcrf.fused.Fused.run", lambda self, x, *a, **k: (seen.append(x.shape[-1]), run(self, x, *a, **k))[1]
    )
    return seen


@pytest.mark.parametrize("solver", ["l2fw", "efw", "fw", "l2fw, half steps"])
def test_pruning_changes_nothing(solver, pruned):
    E = energy(9, spread=0.3)
    E.unary[:, [1, 4, 5, 7, 8]] += 9.0
    E.unary[:40, 2] = torch.inf
    expected = one_by_one(E, SOLVERS[solver])
    pruned.clear()
    found = at_once(E, SOLVERS[solver])
    first_is_full = solver != "l2fw, half steps"
    assert pruned == ([9, 4] if first_is_full else [9])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if solver == "efw" else 1e-11)


@pytest.mark.parametrize("solver", ["l2fw", "mf"])
def test_pruning_leaves_gradients_alone(solver, pruned):
    grads = []
    for run in (at_once, one_by_one):
        weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (0.8, 1.3)]
        E = energy(9, spread=0.3, weights=weights)
        E.unary[:, 4:] += 9.0
        u = E.unary.requires_grad_()
        pruned.clear()
        x = run(E, SOLVERS[solver])
        grads.append(torch.autograd.grad((x * normal(9, seed=4)).square().sum(), [u, *weights]))
        if run is at_once:
            # Mean field gives every label something to learn from.
            assert (4 in pruned) == (solver == "l2fw")
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_no_pruning_for_penalties_that_are_not_potts(pruned):
    E = energy(9, spread=0.3, compat=COMPATS["full"])
    E.unary[:, 4:] += 9.0
    at_once(E, SOLVERS["l2fw"])
    assert set(pruned) == {9}


def test_no_pruning_for_negative_weights(pruned):
    E = energy(9, spread=0.3, weights=[-1.0, 1.0])
    E.unary[:, 4:] += 9.0
    at_once(E, SOLVERS["l2fw"])
    assert set(pruned) == {9}


def test_possible_labels():
    u = torch.tensor([[0.0, 0.9, 5.0, 2.0], [0.0, 3.0, 1.0, 2.0]])
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.8, 0.0, 0.0, 0.2]])
    kept = {name: possible(x, u, [Move(name, scale)]).tolist() for name, scale in
            [("project", -1.0), ("vertex", -1.0), ("softmax", -50.0)]}  # fmt: skip
    assert kept == {"project": [0, 1, 2, 3], "vertex": [0, 3], "softmax": [0, 3]}


# --- derivatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
@pytest.mark.parametrize("solver", ["mf", "l2fw"])
@pytest.mark.parametrize("num_steps", [1, 4])
def test_gradients(num_steps, solver, compat):
    solver = SOLVERS[solver]
    direction = normal(13 * 18, 4, seed=8)
    grads = []
    for run in (at_once, one_by_one):
        weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in (0.8, 1.3)]
        E = energy(4, weights=weights, compat=compat)
        u, x0 = E.unary.requires_grad_(), torch.softmax(normal(13 * 18, 4, seed=9), -1).requires_grad_()
        grads.append(torch.autograd.grad(run(E, solver, x0, num_steps), [u, x0, *weights], direction))
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


def test_gradients_of_a_batch():
    grads = []
    for run in (at_once, one_by_one):
        E = energy(3, batch=(2,))
        u = E.unary.requires_grad_()
        grads.append(torch.autograd.grad(run(E, SOLVERS["l2fw"]).square().sum(), u)[0])
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", ["mf", "l2fw"])
def test_gradcheck(solver):
    P = energy(3, grid=(3, 4)).pairwise

    def end(u, x0):
        return at_once(Energy(P, u), SOLVERS[solver], torch.softmax(x0, -1), 3)

    u, x0 = normal(12, 3, seed=1).requires_grad_(), normal(12, 3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(end, (u, x0))
    assert torch.autograd.gradgradcheck(end, (u, x0))


@pytest.mark.parametrize("solver", ["l2fw, half steps", "pgd"])
def test_other_steps_are_differentiated_one_by_one(solver):
    grads = []
    for run in (at_once, one_by_one):
        E = energy(3)
        u = E.unary.requires_grad_()
        grads.append(torch.autograd.grad(run(E, SOLVERS[solver]).square().sum(), u)[0])
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-10)
