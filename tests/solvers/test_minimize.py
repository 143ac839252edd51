import pytest
import torch
from problems import L, N, best, feasible, kernel_energy, matrix_energy, start
from torch.testing import assert_close

import fwcrf
from fwcrf.regularizers import Entropy, Simplex
from fwcrf.solvers import FrankWolfe, Iterate
from fwcrf.stepsizes import LineSearch
from fwcrf.theory import conditional_gradient_norm


def test_starts_at_the_softmax_of_the_unary_and_zero_steps_return_it():
    E = matrix_energy()
    solution = fwcrf.minimize(E, "l2fw", num_steps=0)
    assert_close(solution.probabilities, start(E))
    assert torch.equal(solution.labels, E.unary.argmin(-1))
    x0 = feasible(N, L)
    assert fwcrf.minimize(E, "l2fw", x0, num_steps=0).probabilities is x0


def test_solution_has_labels_and_their_energy():
    E = matrix_energy(batch=(2,))
    solution = fwcrf.minimize(E, "efw", num_steps=5)
    assert solution.labels.shape == (2, N)
    assert torch.equal(solution.labels, solution.probabilities.argmax(-1))
    assert torch.equal(solution.energy, E.of_labels(solution.labels))
    assert solution.energy.dtype == torch.float64
    assert solution.trace is None
    assert not solution.converged


def test_solver_by_name_or_as_an_object():
    E = matrix_energy()
    named = fwcrf.minimize(E, "mf", num_steps=3).probabilities
    assert torch.equal(fwcrf.minimize(E, FrankWolfe(Entropy(1.0)), num_steps=3).probabilities, named)


def test_callback_sees_every_iterate():
    seen = []
    solution = fwcrf.minimize(matrix_energy(), "mf", num_steps=3, callback=lambda k, x: seen.append((k, x)))
    assert [k for k, _ in seen] == [0, 1, 2, 3]
    assert_close(seen[0][1], start(matrix_energy()))
    assert seen[-1][1] is solution.probabilities


def test_rounding_by_name_or_function():
    E = matrix_energy(3)
    nearest = fwcrf.minimize(E, "mf", num_steps=3, rounding="nearest")
    bcd = fwcrf.minimize(E, "mf", num_steps=3, rounding="bcd")
    mine = fwcrf.minimize(E, "mf", num_steps=3, rounding=lambda f, x: torch.zeros(N, dtype=torch.int64))
    assert bcd.energy <= nearest.energy
    assert best(E) <= bcd.energy + 1e-12
    assert_close(mine.energy, E.of_labels(torch.zeros(N, dtype=torch.int64)))


@pytest.mark.parametrize("name", ["mf", "convex-fw", "cccp-qp2", "pgd", "fista", "emd"])
def test_tol_stops_at_a_stationary_point_and_says_so(name):
    E = kernel_energy(5, batch=(2,))
    steps = []
    solution = fwcrf.minimize(E, name, num_steps=5000, tol=1e-2, callback=lambda k, x: steps.append(k))
    assert solution.converged
    assert len(steps) < 5000
    short = fwcrf.minimize(E, name, num_steps=max(0, len(steps) - 2), tol=1e-2)
    assert not short.converged


def test_tol_is_on_the_gap_relative_to_the_objective():
    E = kernel_energy(5)
    x = fwcrf.minimize(E, "efw", num_steps=1000, tol=1e-5).probabilities
    g = Entropy(0.25)
    value = E.value(x) + g.value(x)
    assert conditional_gradient_norm(E, g, x) <= 1e-5 * max(1.0, abs(value))


@pytest.mark.parametrize("name", fwcrf.solvers.names())
def test_neither_tracing_nor_a_tolerance_changes_the_steps(name):
    E = kernel_energy(5)
    plain = fwcrf.minimize(E, name, num_steps=4).probabilities
    assert torch.equal(fwcrf.minimize(E, name, num_steps=4, trace=True).probabilities, plain)
    assert_close(fwcrf.minimize(E, name, num_steps=4, tol=0.0).probabilities, plain)


def count_applications(E, **settings):
    calls = []

    class Loud(fwcrf.pairwise.Matrix):
        def __call__(self, x):
            calls.append(1)
            return super().__call__(x)

    fwcrf.minimize(fwcrf.Energy(Loud(E.pairwise.values, L), E.unary), **settings)
    return len(calls)


def test_tol_costs_one_application_for_the_last_iterate_alone():
    E = matrix_energy()
    solver = fwcrf.solvers.get("l2fw")
    assert count_applications(E, solver=solver, num_steps=6) == 6
    assert count_applications(E, solver=solver, num_steps=6, tol=0.0) == 7
    solver = FrankWolfe(Entropy(0.5), LineSearch())
    assert count_applications(E, solver=solver, num_steps=6) == 7
    assert count_applications(E, solver=solver, num_steps=6, tol=0.0) == 7


def test_trace_records_what_happened():
    E = kernel_energy(5, batch=(2,))
    g = Entropy(0.5)
    seen = []
    solver = FrankWolfe(g, fwcrf.stepsizes.Harmonic())
    solution = fwcrf.minimize(E, solver, num_steps=4, trace=True, callback=lambda k, x: seen.append(x))
    assert [r.k for r in solution.trace] == [0, 1, 2, 3, 4]
    assert [r.applications for r in solution.trace] == [0, 1, 2, 3, 4]
    assert [r.step for r in solution.trace] == [None, 1.0, 2 / 3, 0.5, 0.4]
    seconds = [r.seconds for r in solution.trace]
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0
    for record, x in zip(solution.trace, seen, strict=True):
        p = g.argmin(E.grad(x))
        assert_close(record.value, E.value(x) + g.value(x))
        assert_close(record.energy, E.value(x))
        assert_close(record.rounded, E.of_labels(x.argmax(-1)))
        assert_close(record.gap, conditional_gradient_norm(E, g, x))
        assert_close(record.distance, (p - x).square().sum((-2, -1)).sqrt())
        assert record.gap.shape == (2,)


def test_a_trace_keeps_no_graph():
    E = kernel_energy(5)
    E = fwcrf.Energy(E.pairwise, E.unary.clone().requires_grad_())
    solution = fwcrf.minimize(E, "efw", num_steps=2, trace=True, tol=1e-12)
    assert solution.probabilities.requires_grad
    assert not any(r.value.requires_grad or r.gap.requires_grad for r in solution.trace)
    assert not solution.energy.requires_grad


def test_a_solver_of_ones_own_needs_a_state_with_x_only():
    class Greedy:
        def init(self, f, x0):
            return Iterate(x0, f, Simplex())

        def step(self, f, state, k):
            return Iterate(Simplex().argmin(f.grad(state.x)), f, Simplex())

    E = kernel_energy(5)
    solution = fwcrf.minimize(E, Greedy(), num_steps=30, tol=1e-9, trace=True)
    assert solution.converged
    assert solution.trace[-1].gap <= 1e-9 * max(1, abs(solution.trace[-1].value))


def rows(value):
    x = start(matrix_energy())
    x[0] = torch.tensor(value)
    return x


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_steps": -1}, ValueError, "num_steps=-1; expected 0"),
        ({"num_steps": 1.5}, ValueError, "num_steps=1.5"),
        ({"num_steps": 1, "tol": -1.0}, ValueError, "tol=-1.0"),
        ({"num_steps": 1, "tol": float("nan")}, ValueError, "tol=nan"),
        ({"num_steps": 1, "rounding": "up"}, ValueError, "rounding='up' is not known; expected nearest, bcd"),
        ({"num_steps": 1, "x0": torch.rand(N, L)}, TypeError, "x0 is torch.float32; expected .*float64"),
        ({"num_steps": 1, "x0": [[1.0]]}, TypeError, "x0 is list"),
        ({"num_steps": 1, "x0": torch.ones(L, N).double()}, ValueError, r"\(3, 6\); expected .* \(6, 3\)"),
        ({"num_steps": 1, "x0": rows([0.0, float("nan"), 1.0])}, ValueError, "NaN"),
        ({"num_steps": 1, "x0": rows([0.5, 0.5, 0.5])}, ValueError, "not probabilities"),
        ({"num_steps": 1, "x0": rows([-0.5, 0.5, 1.0])}, ValueError, "negative"),
    ],
)
def test_bad_input_is_named(settings, error, message):
    with pytest.raises(error, match=message):
        fwcrf.minimize(matrix_energy(), "l2fw", **settings)


def test_a_start_on_a_forbidden_label_is_refused():
    unary = matrix_energy().unary.clone()
    unary[2, 1] = torch.inf
    E = fwcrf.Energy(matrix_energy().pairwise, unary)
    with pytest.raises(ValueError, match="forbidden labels"):
        fwcrf.minimize(E, "l2fw", feasible(N, L), num_steps=1)
