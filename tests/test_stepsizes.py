import math

import pytest
import torch
from helpers import uniform
from hypothesis import given
from hypothesis import strategies as st
from problems import PROBLEMS, feasible, kernel_energy, matrix_energy, start
from scipy.optimize import minimize_scalar
from torch.testing import assert_close

import fwcrf
from fwcrf.pairwise import Matrix
from fwcrf.regularizers import Entropy, Mixed, Simplex, SquaredL2
from fwcrf.solvers import FrankWolfe
from fwcrf.solvers.splits import convexified
from fwcrf.stepsizes import (
    Adaptive,
    Constant,
    ConstantLength,
    Harmonic,
    InverseSqrt,
    LineSearch,
    SegmentSearch,
    Sequence,
    Step,
    rule,
)

REGULARIZERS = {
    "none": Simplex(),
    "l2": SquaredL2(0.7),
    "entropy": Entropy(0.4),
    "mixed": Mixed(0.3, 0.2),
    "per node": SquaredL2(uniform(6, 1) + 0.1),
}


def make(E, g, x, k=0):
    grad = E.grad(x)
    return Step(k, E, g, x, grad, g.argmin(grad))


def total(step, a):
    x = step.towards(a)
    return step.f.value(x) + step.g.value(x)


@pytest.fixture(params=REGULARIZERS.values(), ids=REGULARIZERS)
def g(request):
    return request.param


def test_schedules_are_the_known_ones():
    assert [Constant(0.3).at(k) for k in range(3)] == [0.3, 0.3, 0.3]
    assert [Harmonic().at(k) for k in range(3)] == [1.0, 2 / 3, 0.5]
    assert [InverseSqrt(1.5).at(k) for k in range(4)] == [1.0, 1.0, 1.5 / math.sqrt(3), 0.75]
    assert [Sequence([1.0, 0.5]).at(k) for k in range(4)] == [1.0, 0.5, 0.5, 0.5]


def test_constant_length_moves_by_that_length_or_onto_p():
    E = matrix_energy(batch=(2,))
    step = make(E, Simplex(), torch.stack([feasible(6, 3), feasible(6, 3, seed=1)]))
    moved = step.towards(ConstantLength(0.1)(step)) - step.x
    assert_close(moved.square().sum((-2, -1)).sqrt(), torch.full((2,), 0.1, dtype=torch.float64))
    assert torch.equal(ConstantLength(100.0)(step), torch.ones(2, dtype=torch.float64))


def test_constant_length_stays_where_nothing_moves():
    E = fwcrf.Energy(matrix_energy().pairwise, torch.zeros(6, 3, dtype=torch.float64).requires_grad_())
    x = E.unary + torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 1, 2]]
    step = Step(0, E, Simplex(), x, E.grad(x), x)
    a = ConstantLength(0.1)(step)
    assert a == 1
    step.towards(a).sum().backward()
    assert torch.isfinite(E.unary.grad).all()


@given(st.integers(0, 10_000), st.sampled_from(sorted(REGULARIZERS)))
def test_line_search_is_the_best_point_of_the_segment(seed, name):
    g = REGULARIZERS[name]
    step = make(matrix_energy(seed), g, feasible(6, 3, seed=seed + 1, spread=3.0))
    a = float(LineSearch()(step))
    found = minimize_scalar(lambda a: float(total(step, a)), bounds=(0, 1), method="bounded")
    judge = min(found.fun, float(total(step, 0.0)), float(total(step, 1.0)))
    assert 0 <= a <= 1
    assert float(total(step, a)) <= judge + 1e-9 * (1 + abs(judge))


@given(st.integers(0, 10_000), st.sampled_from(sorted(REGULARIZERS)))
def test_line_search_and_adaptive_steps_never_raise_the_objective(seed, name):
    step = make(matrix_energy(seed), REGULARIZERS[name], feasible(6, 3, seed=seed + 1, spread=6.0))
    before = float(total(step, 0.0))
    for stepsize in (LineSearch(), Adaptive()):
        assert float(total(step, stepsize(step))) <= before + 1e-12 * (1 + abs(before))


@pytest.mark.parametrize("name", ["matrix", "potts", "any compatibility"])
def test_segment_search_never_raises_the_objective_and_is_line_search_where_it_is_convex(name, g):
    E = PROBLEMS[name]()
    for f in (E, convexified(E, Simplex())[0]):
        step = make(f, g, feasible(6, 3, seed=4))
        a = SegmentSearch()(step)
        assert total(step, a) <= total(step, torch.zeros_like(a)) + 1e-12
    assert_close(a, LineSearch()(step), atol=1e-6, rtol=0)


def test_concave_objectives_take_a_full_step(g):
    E = kernel_energy(0, self_edges=True)
    assert E.smoothness < 1e-6
    step = make(E, g, feasible(6, 3))
    assert LineSearch()(step) == 1
    assert Adaptive()(step) == 1


def test_line_search_goes_to_the_better_end_of_a_concave_parabola():
    """Here p is no oracle's answer: the far end is higher, or lower, than x."""
    P = fwcrf.pairwise.Matrix(-torch.eye(2, dtype=torch.float64), 2)
    x, p = torch.tensor([[0.5, 0.5]]).double(), torch.tensor([[1.0, 0.0]]).double()
    for unary, expected in (([[0.6, -0.6]], 0.0), ([[-0.6, 0.6]], 1.0)):
        E = fwcrf.Energy(P, torch.tensor(unary).double())
        step = Step(0, E, Simplex(), x, E.grad(x), p)
        assert LineSearch()(step) == expected


def test_adaptive_step_is_the_formula(g):
    E, x = matrix_energy(4), feasible(6, 3, seed=5)
    step = make(E, g, x)
    centre = torch.kron(torch.eye(6), torch.eye(3) - 1 / 3).double()
    L = torch.linalg.eigvalsh(centre @ E.pairwise.to_dense() @ centre)[-1]
    assert_close(E.smoothness, L, rtol=5e-3, atol=0)
    sigma = g.strong_convexity
    expected = (step.gap / step.squared_distance + sigma / 2) / (L + sigma)
    assert 0 < expected < 1
    assert_close(Adaptive(L)(step), expected)
    assert_close(Adaptive()(step), expected, rtol=5e-3, atol=0)


def test_smoothness_is_found_once_per_energy():
    calls = []

    class Loud(fwcrf.pairwise.Matrix):
        def __call__(self, x):
            calls.append(1)
            return super().__call__(x)

    E = fwcrf.Energy(Loud(matrix_energy().pairwise.values, 3), matrix_energy().unary)
    solver = FrankWolfe(SquaredL2(1.0), Adaptive())
    fwcrf.minimize(E, solver, num_steps=1)
    first = len(calls)
    fwcrf.minimize(E, solver, num_steps=5)
    assert len(calls) - first == 5


@pytest.mark.parametrize(
    "one", [1.0, torch.tensor(1.0), torch.ones(2)], ids=["number", "scalar", "per image"]
)
def test_a_full_step_lands_on_p_to_the_last_bit(one):
    E = matrix_energy(batch=(2,))
    step = make(E, Entropy(0.3), torch.stack([feasible(6, 3), feasible(6, 3, seed=1)]))
    assert torch.equal(step.towards(one), step.p)


def test_steps_may_differ_between_images():
    E = matrix_energy(batch=(3,))
    x0 = start(E)
    steps = torch.tensor([0.0, 0.25, 1.0])
    x = fwcrf.minimize(E, fwcrf.solvers.get("l2fw", step=Constant(steps)), x0, num_steps=1).probabilities
    p = SquaredL2(1.0).argmin(E.grad(x0))
    for i, a in enumerate(steps):
        assert_close(x[i], x0[i] + float(a) * (p[i] - x0[i]))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_gradient_kept_by_line_search_is_the_gradient(problem, g):
    E = problem()
    solver = FrankWolfe(g, LineSearch())
    state = solver.init(E, start(E))
    for k in range(10):
        state = solver.step(E, state, k)
        assert_close(state.grad, E.grad(state.x), rtol=1e-9, atol=1e-11)


def test_gradient_kept_by_line_search_does_not_drift():
    """It is never recomputed. After 200 steps in float32 it is off by a few units in the last place."""
    E = kernel_energy(3, n=100)
    E = fwcrf.Energy(E.pairwise, E.unary.float())
    solver = fwcrf.solvers.get("convex-fw")
    state = solver.init(E, start(E))
    for k in range(200):
        state = solver.step(E, state, k)
    fresh = state.f.grad(state.x)
    assert (state.grad - fresh).abs().max() <= 1e-5 * fresh.abs().max()


@pytest.mark.parametrize("stepsize", [LineSearch(), Adaptive(smoothness=1.0), Constant(0.5)])
def test_a_step_applies_the_pairwise_operator_once(stepsize, g):
    E = kernel_energy(1)
    first, *_, last = fwcrf.minimize(E, FrankWolfe(g, stepsize), num_steps=7, trace=True).trace
    # A line search pays for the first gradient beforehand, as it were.
    assert last.applications - first.applications == 7 + isinstance(stepsize, LineSearch)


@pytest.mark.parametrize("g", [SquaredL2(0.8), Entropy(0.5)], ids=["l2", "entropy"])
@pytest.mark.parametrize("stepsize", [LineSearch(), Adaptive(3.0), ConstantLength(0.3)], ids=repr)
def test_rules_are_differentiable(stepsize, g):
    E = matrix_energy(2, batch=(2,))
    x = start(E)

    def step(unary, weight):
        f = fwcrf.Energy(fwcrf.pairwise.Matrix(E.pairwise.values, 3), unary)
        s = make(f, type(g)(weight), x)
        return s.towards(stepsize(s))

    weight = torch.tensor(g.weight, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(step, (E.unary.clone().requires_grad_(), weight))


def test_hard_constraints_do_not_disturb_a_rule():
    unary = matrix_energy().unary.clone()
    unary[0, 1] = unary[3, 0] = torch.inf
    E = fwcrf.Energy(matrix_energy().pairwise, unary)
    for g in REGULARIZERS.values():
        step = make(E, g, start(E))
        for stepsize in (LineSearch(), Adaptive(), ConstantLength(0.2)):
            a = stepsize(step)
            assert torch.isfinite(a)
            assert torch.isfinite(total(step, a))


def test_rule_reads_numbers_sequences_and_rules():
    assert rule(0.5) == Constant(0.5)
    assert rule([1.0, 0.5]) == Sequence([1.0, 0.5])
    assert isinstance(rule(torch.tensor([1.0, 0.5])), Sequence)
    assert isinstance(rule(torch.tensor(0.5)), Constant)
    assert rule(Harmonic()) == Harmonic()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Constant(1.5), ValueError, "step=1.5; expected steps from 0 to 1"),
        (lambda: Constant(-0.1), ValueError, "from 0 to 1"),
        (lambda: Constant(float("nan")), ValueError, "from 0 to 1"),
        (lambda: Constant(torch.tensor([0.5, 2.0])), ValueError, "from 0 to 1"),
        (lambda: Sequence([0.5, 1.1]), ValueError, "steps=1.1"),
        (lambda: Sequence([]), ValueError, "empty"),
        (lambda: InverseSqrt(0.0), ValueError, "scale=0.0; expected a positive"),
        (lambda: ConstantLength(-1.0), ValueError, "length=-1.0"),
        (lambda: Adaptive(-1.0), ValueError, "smoothness=-1.0"),
        (lambda: rule("fast"), TypeError, "step='fast'"),
    ],
)
def test_bad_steps_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_line_search_that_ends_at_0_or_1_does_not_move_with_its_arguments():
    """Three images of one batch: f + g rises from x on, has its minimum between x and p, or falls up to p."""
    n = 4
    P = Matrix(torch.eye(2 * n).double().expand(3, -1, -1), 2)
    x = torch.tensor([0.7, 0.3]).double().expand(3, n, 2)
    p = torch.tensor([0.4, 0.6]).double().expand(3, n, 2)
    tilt = torch.tensor([-2.0, -0.1, 3.0]).double()

    def search(tilt):
        u = torch.stack([tilt, torch.zeros_like(tilt)], -1)[:, None].expand(3, n, 2)
        E = fwcrf.Energy(P, u)
        return LineSearch()(Step(0, E, Entropy(0.2), x, E.grad(x), p))

    a = search(tilt)
    assert a[0] == 0 and 0 < a[1] < 1 and a[2] == 1
    jacobian = torch.autograd.functional.jacobian(search, tilt)
    h = 1e-6
    quotients = torch.stack(
        [(search(tilt + h * e) - search(tilt - h * e)) / (2 * h) for e in torch.eye(3)], -1
    )
    assert jacobian[0].abs().max() == jacobian[2].abs().max() == 0
    assert jacobian[1, 1] > 0.1
    assert_close(jacobian, quotients, rtol=1e-5, atol=1e-7)
