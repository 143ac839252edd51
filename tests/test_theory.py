"""The theorem's bounds, on random instances on which their conditions hold."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import PROBLEMS, L, N, best, feasible, matrix_energy, start
from torch.testing import assert_close

import fwcrf
from fwcrf.pairwise import Matrix
from fwcrf.regularizers import Entropy, Mixed, Simplex, SquaredL2, Tsallis
from fwcrf.solvers import FrankWolfe
from fwcrf.solvers.splits import convexified, diagonal_dominance
from fwcrf.stepsizes import Adaptive, Constant, ConstantLength, Harmonic, InverseSqrt, LineSearch
from fwcrf.theory import (
    ConcaveF,
    ConvexG,
    StronglyConvexG,
    conditional_gradient_norm,
    convexified_tightness,
    diameter,
    rounding_loss,
    tightness,
)

STEPS = 12
OMEGA = diameter(N)
seeds = st.integers(0, 10_000)
few = settings(max_examples=20)


def tangent_eigenvalues(E):
    centre = torch.kron(torch.eye(N), torch.eye(L) - 1 / L).double()
    return torch.linalg.eigvalsh(centre @ E.pairwise.to_dense() @ centre)


def smoothness(E):
    return max(0.0, float(tangent_eigenvalues(E)[-1]))


def concave_energy(seed):
    E = matrix_energy(seed)
    shift = float(torch.linalg.eigvalsh(E.pairwise.values)[-1])
    return fwcrf.Energy(Matrix(E.pairwise.values - shift * torch.eye(N * L), L), E.unary)


def run(E, g, stepsize, num_steps=STEPS):
    """F, S and the steps of a run, and the least F in it.

    In the place of F* the bounds are tighter than the theorem's, and hold by the same proof.
    """
    trace = fwcrf.minimize(E, FrankWolfe(g, stepsize), num_steps=num_steps, trace=True).trace
    values = [r.value.item() for r in trace]
    return values, [r.gap.item() for r in trace], [r.step for r in trace[1:]], min(values)


def check(values, gaps, decreases, optimalities):
    scale = 1 + max(map(abs, values))
    for k in range(STEPS):
        assert values[k] - values[k + 1] >= float(decreases[k]) - 1e-9 * scale
        assert min(gaps[: k + 1]) <= float(optimalities[k]) + 1e-9 * scale


WEAK = {
    "simplex": Simplex(),
    "l2": SquaredL2(0.8),
    "entropy": Entropy(0.5),
}
STRONG = {
    "l2": SquaredL2(2.5),
    "entropy": Entropy(1.5),
    "mixed": Mixed(1.0, 0.5),
    "tsallis": Tsallis(1.5, 2.0),
}


@few
@given(seeds, st.sampled_from(sorted(STRONG)), st.floats(0.0, 6.0))
def test_gap_is_at_least_the_distance_and_zero_where_nothing_moves(seed, name, spread):
    E, g, x = matrix_energy(seed), STRONG[name], feasible(N, L, seed=seed, spread=spread)
    p = g.argmin(E.grad(x))
    gap = conditional_gradient_norm(E, g, x)
    assert gap >= 0.5 * g.strong_convexity * (x - p).square().sum() - 1e-10
    # A stationary point: let the unary make the oracle answer x itself.
    still = fwcrf.Energy(E.pairwise, -E.pairwise(x) - g.grad(x))
    assert abs(conditional_gradient_norm(still, g, x)) <= 1e-7


def test_gap_of_vanilla_frank_wolfe_is_that_of_the_linear_problem():
    E, x = matrix_energy(3), feasible(N, L)
    grad = E.grad(x)
    expected = (grad * x).sum() - grad.amin(-1).sum()
    assert_close(conditional_gradient_norm(E, Simplex(), x), expected)


@few
@given(seeds, st.sampled_from(sorted(WEAK)), st.floats(0.05, 1.0))
def test_constant_steps_with_convex_g(seed, name, a):
    E, g = matrix_energy(seed), WEAK[name]
    bound = ConvexG(smoothness(E), OMEGA)
    values, gaps, _, least = run(E, g, Constant(a))
    check(
        values,
        gaps,
        [bound.decrease_constant(s, a) for s in gaps],
        [bound.optimality_constant(k, values[0] - least, a) for k in range(STEPS)],
    )


@few
@given(seeds, st.sampled_from(sorted(STRONG)), st.floats(0.05, 1.0))
def test_constant_steps_with_strongly_convex_g(seed, name, a):
    E, g = matrix_energy(seed), STRONG[name]
    bound = StronglyConvexG(smoothness(E), g.strong_convexity, OMEGA)
    values, gaps, _, least = run(E, g, Constant(a))
    check(
        values,
        gaps,
        [bound.decrease_constant(s, a) for s in gaps],
        [bound.optimality_constant(k, values[0] - least, a) for k in range(STEPS)],
    )


@few
@given(seeds, st.sampled_from(sorted({**WEAK, **STRONG})), st.floats(0.01, 0.3))
def test_steps_of_constant_length(seed, name, length):
    E, g = matrix_energy(seed), {**STRONG, **WEAK}[name]
    values, gaps, steps, least = run(E, g, ConstantLength(length))
    if max(steps) >= 1:  # cut: the rows of the table do not speak of these
        return
    bounds = [ConvexG(smoothness(E), OMEGA)]
    if g.strong_convexity > 0:
        bounds.append(StronglyConvexG(smoothness(E), g.strong_convexity, OMEGA))
    for bound in bounds:
        check(
            values,
            gaps,
            [bound.decrease_length(s, length) for s in gaps],
            [bound.optimality_length(k, values[0] - least, length) for k in range(STEPS)],
        )


@few
@given(seeds, st.sampled_from(sorted(WEAK)), st.sampled_from([Harmonic(), InverseSqrt(0.7)]))
def test_schedules_with_convex_g(seed, name, rule):
    E, g = matrix_energy(seed), WEAK[name]
    bound = ConvexG(smoothness(E), OMEGA)
    values, gaps, steps, least = run(E, g, rule)
    check(
        values,
        gaps,
        [bound.decrease_schedule(s, a) for s, a in zip(gaps, steps, strict=False)],
        [bound.optimality_schedule(values[0] - least, steps[: k + 1]) for k in range(STEPS)],
    )


@few
@given(seeds, st.sampled_from(sorted(STRONG)), st.sampled_from([Harmonic(), InverseSqrt(0.7)]))
def test_schedules_with_strongly_convex_g(seed, name, rule):
    E, g = matrix_energy(seed), STRONG[name]
    bound = StronglyConvexG(smoothness(E), g.strong_convexity, OMEGA)
    values, gaps, steps, least = run(E, g, rule)
    first = bound.settled(steps)
    if first == STEPS:
        return
    assert all(a <= bound.omega for a in steps[first:])
    for k in range(STEPS):
        if steps[k] < 2 * bound.omega:
            assert values[k] - values[k + 1] >= bound.decrease_schedule(gaps[k], steps[k]) - 1e-9
    assert min(gaps) <= bound.optimality_schedule(values[first] - least, steps) + 1e-9


@few
@given(seeds, st.sampled_from(sorted({**WEAK, **STRONG})), st.booleans())
def test_adaptive_steps_and_line_search(seed, name, search):
    E, g = matrix_energy(seed), {**STRONG, **WEAK}[name]
    L_f = smoothness(E)
    values, gaps, _, least = run(E, g, LineSearch() if search else Adaptive(L_f))
    bounds = [ConvexG(L_f, OMEGA)]
    if g.strong_convexity > 0:
        bounds.append(StronglyConvexG(L_f, g.strong_convexity, OMEGA))
    for bound in bounds:
        check(
            values,
            gaps,
            [bound.decrease_adaptive(s) for s in gaps],
            [bound.optimality_adaptive(k, values[0] - least) for k in range(STEPS)],
        )


@few
@given(seeds, st.sampled_from(sorted(WEAK)), st.floats(0.05, 1.0))
def test_concave_f(seed, name, a):
    E, g = concave_energy(seed), WEAK[name]
    bound = ConcaveF(OMEGA)
    rules = {
        "constant": (Constant(a), lambda s, _: bound.decrease_constant(s, a)),
        "length": (ConstantLength(0.2 * a), lambda s, _: bound.decrease_length(s, 0.2 * a)),
        "schedule": (Harmonic(), bound.decrease_schedule),
        "adaptive": (Adaptive(0.0), lambda s, _: bound.decrease_adaptive(s)),
        "search": (LineSearch(), lambda s, _: bound.decrease_adaptive(s)),
    }
    for rule, (stepsize, decrease) in rules.items():
        values, gaps, steps, least = run(E, g, stepsize)
        if rule == "length" and max(steps) >= 1:
            continue
        delta0 = values[0] - least
        optimality = {
            "constant": lambda k, d=delta0: bound.optimality_constant(k, d, a),
            "length": lambda k, d=delta0: bound.optimality_length(k, d, 0.2 * a),
            "schedule": lambda k, d=delta0, s=steps: bound.optimality_schedule(d, s[: k + 1]),
            "adaptive": lambda k, d=delta0: bound.optimality_adaptive(k, d),
            "search": lambda k, d=delta0: bound.optimality_adaptive(k, d),
        }[rule]
        decreases = [decrease(s, b) for s, b in zip(gaps, steps, strict=False)]
        check(values, gaps, decreases, [optimality(k) for k in range(STEPS)])


def test_the_bounds_are_those_of_the_table():
    """One number per cell, worked out by hand: L = 2, Omega = 3, sigma = 1, so omega = 1/3."""
    convex, strong, concave = ConvexG(2.0, 3.0), StronglyConvexG(2.0, 1.0, 3.0), ConcaveF(3.0)
    assert math.isclose(convex.decrease_constant(4.0, 0.5), 0.5 * 4 - 9 * 0.25)
    assert math.isclose(convex.optimality_constant(1, 4.0, 0.5), 4 + 4.5)
    assert math.isclose(convex.decrease_length(4.0, 0.6), 0.8 - 0.36)
    assert math.isclose(convex.optimality_length(1, 4.0, 0.6), 10 + 1.8)
    assert math.isclose(convex.optimality_schedule(4.0, [1.0, 0.5]), (4 + 9 * 1.25) / 1.5)
    assert math.isclose(convex.decrease_adaptive(4.0), 0.5 * 16 / 18)
    assert math.isclose(convex.decrease_adaptive(40.0), 20)
    assert math.isclose(convex.optimality_adaptive(3, 4.0), max(2.0, 4 * 3 / 2))
    assert math.isclose(strong.decrease_constant(4.0, 0.5), 0.5 * 0.5 * 4)
    assert math.isclose(strong.optimality_constant(1, 4.0, 0.5), 4 / (0.25 * 2))
    assert math.isclose(strong.decrease_constant(4.0, 0.8), 3.2 - 0.5 * (3 * 0.64 - 0.8) * 9)
    assert math.isclose(strong.optimality_constant(1, 4.0, 0.8), 2.5 + 0.5 * (2.4 - 1) * 9)
    assert math.isclose(strong.decrease_length(2.0, 0.6), 1.2 - 1.5 * 0.36)
    assert math.isclose(
        strong.optimality_length(1, 4.0, 0.5), (4 / math.sqrt(2) + 1.5 / 2 / math.sqrt(2)) ** 2
    )
    assert strong.settled([1.0, 0.2, 0.5, 0.3]) == 3
    assert math.isclose(strong.optimality_schedule(4.0, [1.0, 0.3, 0.2]), 8)
    assert math.isclose(strong.decrease_adaptive(3.0), 1)
    assert math.isclose(strong.optimality_adaptive(1, 4.0), 6)
    assert (concave.decrease_constant(4.0, 0.5), concave.decrease_adaptive(4.0)) == (2, 4)
    assert (concave.optimality_constant(1, 4.0, 0.5), concave.optimality_adaptive(1, 4.0)) == (4, 2)


def test_diameter_is_reached_by_two_labellings():
    x, y = (torch.nn.functional.one_hot(torch.full((5,), s), 2).double() for s in (0, 1))
    assert math.isclose(diameter(5), float((x - y).square().sum().sqrt()))


@few
@given(seeds, st.sampled_from(["l2", "entropy", "mixed"]))
def test_labels_from_the_global_minimum_are_within_the_bound(seed, name):
    """A regularizer strong enough to make E + r convex, so that its minimum is found; E* by enumeration."""
    E = matrix_energy(seed)
    weight = 0.1 - min(0.0, float(tangent_eigenvalues(E)[0]))
    r = {"l2": SquaredL2(weight), "entropy": Entropy(weight), "mixed": Mixed(weight, 0.3)}[name]
    x = fwcrf.minimize(E, FrankWolfe(r, LineSearch()), num_steps=300, tol=1e-7).probabilities
    least = best(E)
    for rounding in ("bcd", "nearest"):
        labels = fwcrf.rounding.get(rounding)(E, x)
        assert least - 1e-9 <= E.of_labels(labels) <= least + tightness(E, r, rounding=rounding) + 1e-5


@few
@given(seeds)
def test_labels_from_the_convex_relaxation_are_within_its_bound(seed):
    E = matrix_energy(seed)
    f, _ = convexified(E, Simplex())
    x = start(E)
    step = 1 / float(torch.linalg.eigvalsh(f.pairwise.to_dense())[-1])
    x = fwcrf.minimize(f, fwcrf.solvers.get("fista", step=min(1.0, step)), num_steps=400).probabilities
    slack = convexified_tightness(diagonal_dominance(E))
    assert E.of_labels(fwcrf.rounding.bcd(E, x)) <= best(E) + slack + 1e-4


@few
@given(seeds)
def test_nearest_rounding_loses_no_more_than_the_bound(seed):
    E, x = matrix_energy(seed), feasible(N, L, seed=seed, spread=1.0)
    assert E.of_labels(x.argmax(-1)) - E.value(x) <= rounding_loss(E)


def test_tightness_is_the_papers_for_its_regularizers():
    E = PROBLEMS["potts"](batch=(2,))
    bcd = {"rounding": "bcd"}
    assert_close(tightness(E, SquaredL2(0.5), **bcd), torch.full((2,), 0.25 * N * (1 - 1 / L)).double())
    assert_close(tightness(E, Entropy(0.5), **bcd), torch.full((2,), 0.5 * N * math.log(L)).double())
    assert (tightness(E, Simplex(), **bcd) == 0).all()
    with pytest.raises(ValueError, match="nearest and bcd"):
        tightness(E, Simplex(), rounding="up")


# --- one number per image ------------------------------------------------------------------------


def one_per_image(*values):
    return torch.tensor(values, dtype=torch.float64)


# Smoothness, strong convexity, step or length, gap, Delta: of two images, between and beyond 2 omega.
IMAGES = [(1.0, 0.5, 0.9, 0.3, 1.0), (2.0, 6.0, 0.4, 0.0, 0.0), (0.0, 1.0, 1.0, 0.7, 2.0)]


def values_of(kind, numbers):
    """Every method of a class of bounds, called with its arguments by name."""
    L, sigma, step, gap, delta = numbers
    bounds = {
        "ConvexG": lambda: ConvexG(L, 3.0),
        "StronglyConvexG": lambda: StronglyConvexG(L, sigma, 3.0),
        "ConcaveF": lambda: ConcaveF(3.0),
    }[kind]()
    named = {"gap": gap, "delta0": delta, "delta": delta, "k": 3, "step": step, "length": step}
    named["steps"] = [step, 0.5 * step, 0.1 * step]
    methods = [name for name in dir(bounds) if name.startswith(("decrease_", "optimality_", "settled"))]
    calls = {name: getattr(bounds, name) for name in methods}
    return {
        name: call(**{key: named[key] for key in inspect.signature(call).parameters})
        for name, call in calls.items()
    }


@pytest.mark.parametrize("kind", ["ConvexG", "StronglyConvexG", "ConcaveF"])
def test_every_bound_takes_one_number_per_image(kind):
    together = values_of(kind, [one_per_image(*values) for values in zip(*IMAGES, strict=True)])
    assert len(together) >= 8
    for i, numbers in enumerate(IMAGES):
        for name, alone in values_of(kind, numbers).items():
            found = torch.as_tensor(together[name], dtype=torch.float64).expand(len(IMAGES))[i]
            assert not torch.isnan(found), name
            assert_close(found, torch.as_tensor(alone, dtype=torch.float64), msg=name)


@pytest.mark.parametrize("kind", ["ConvexG", "StronglyConvexG", "ConcaveF"])
def test_bounds_are_numbers_at_zero(kind):
    """No decrease at a stationary point, and no bound, infinity, for steps of 0."""
    for numbers in ((0.0, 1.0, 0.5, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 0.0)):
        for each in (numbers, [one_per_image(v, v) for v in numbers]):
            for name, value in values_of(kind, each).items():
                value = torch.as_tensor(value, dtype=torch.float64)
                assert not torch.isnan(value).any(), name
                assert not name.startswith("decrease") or (value <= 0).all(), name


def test_a_regularizer_that_is_not_strongly_convex_is_refused():
    for sigma in (0.0, -1.0, one_per_image(1.0, 0.0)):
        with pytest.raises(ValueError, match="ConvexG"):
            StronglyConvexG(1.0, sigma, 3.0)
