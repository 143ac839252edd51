"""Robust P^n terms over segments: costs by their definition, gradients, concavity, minima by enumeration."""

import itertools
import math

import pytest
import torch
from helpers import normal, points

import fwcrf
from fwcrf.energy import Energy
from fwcrf.kernels import Exact
from fwcrf.pairwise import dense
from fwcrf.segments import with_segments

N, L = 7, 3
IDS = torch.tensor([4, 4, 9, 4, 9, -1, 4])


def energy(seed=0, scale=1.0, batch=()):
    return Energy(
        dense([Exact(points(N, 2, seed=seed))], L, weights=[0.3]), scale * normal(*batch, N, L, seed=seed)
    )


def by_hand(labels, weight, tolerance, ids=IDS):
    total = 0.0
    for c in set(ids.tolist()) - {-1}:
        inside = labels[ids == c]
        least = min(float((inside != label).float().mean()) for label in range(L))
        total += weight * len(inside) * min(1.0, least / tolerance)
    return total


def every():
    return torch.tensor(list(itertools.product(range(L), repeat=N)))


@pytest.mark.parametrize("tolerance", [0.3, 0.5, 1.0])
def test_labels_cost_what_the_definition_says(tolerance):
    E = energy()
    with_terms = with_segments(E, IDS, 1.7, tolerance=tolerance)
    for labels in every()[::37]:
        expected = float(E.of_labels(labels)) + by_hand(labels, 1.7, tolerance)
        assert float(with_terms.of_labels(labels)) == pytest.approx(expected, abs=1e-9)
        x = torch.nn.functional.one_hot(labels, L).double()
        below = expected - float(with_terms.value(x))
        assert -1e-9 <= below <= 1.7 * 6 * 0.05 * math.log(L + 1)


def test_gradients_and_concavity():
    E = with_segments(with_segments(energy(), IDS, 1.3), torch.arange(N) // 3, 0.4, tolerance=0.6)
    x, y = (torch.softmax(normal(N, L, seed=k), -1) for k in (5, 6))
    learned = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(E.value(learned), learned)
    torch.testing.assert_close(E.grad(x), slope, rtol=1e-10, atol=1e-10)
    assert torch.autograd.gradcheck(E.grad, learned)
    assert float(E.value_from_grad(x, E.grad(x))) == pytest.approx(float(E.value(x)), abs=1e-10)
    for term in E.terms:
        assert float(term.value((x + y) / 2)) >= float(term.value(x) + term.value(y)) / 2 - 1e-12


@pytest.mark.parametrize("common", [True, False])
def test_batches(common):
    E = energy(batch=(2,))
    ids = IDS if common else torch.stack([IDS, IDS.flip(0)])
    both = with_segments(E, ids, 1.1)
    x = torch.softmax(normal(2, N, L, seed=3), -1)
    labels = x.argmax(-1)
    for k in range(2):
        one = with_segments(Energy(E.pairwise, E.unary[k]), ids if common else ids[k], 1.1)
        torch.testing.assert_close(both.grad(x)[k], one.grad(x[k]), rtol=0, atol=1e-12)
        assert float(both.value(x)[k]) == pytest.approx(float(one.value(x[k])), abs=1e-10)
        assert float(both.of_labels(labels)[k]) == pytest.approx(float(one.of_labels(labels[k])), abs=1e-10)


@pytest.mark.parametrize("solver", ["mf", "fw", "efw", "l2fw", "anneal-fw", "emd", "pgd"])
def test_solvers_come_near_the_best_labels(solver):
    gaps, without = [], []
    for seed in range(3):
        plain = energy(seed, 2.0)
        E = with_segments(plain, IDS, 2.0, tolerance=0.6)
        best = min(float(E.of_labels(labels)) for labels in every()[::5])
        found = fwcrf.minimize(E, solver, num_steps=20)
        gaps.append(float(found.energy) - best)
        without.append(float(E.of_labels(fwcrf.minimize(plain, solver, num_steps=20).labels)) - best)
    assert sum(gaps) < 0.8 * sum(without)


def test_steps_are_safe_and_traced():
    E = with_segments(energy(1), IDS, 1.0)
    solver = fwcrf.solvers.get("l2fw", weight=1.0, step=fwcrf.stepsizes.Adaptive())
    trace = fwcrf.minimize(E, solver, num_steps=15, trace=True).trace
    values = [float(r.value) for r in trace]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(values)) and values[-1] < values[0]
    assert trace[-1].applications > 0


def test_learned_weights():
    weight = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)

    def x(weight):
        return fwcrf.minimize(with_segments(energy(2), IDS, weight), "l2fw", num_steps=3).probabilities

    assert torch.autograd.gradcheck(x, weight)


def test_refusals():
    E = with_segments(energy(), IDS)
    for rounding in ("bcd", "merge"):
        with pytest.raises(TypeError, match="with terms over segments; expected rounding='nearest'"):
            _ = fwcrf.minimize(E, "mf", num_steps=1, rounding=rounding).labels
    for solver in ("convex-fw", "cccp-qp2", "cmf1", "cmf2", "admm"):
        with pytest.raises(TypeError, match="with terms over segments"):
            fwcrf.minimize(E, solver, num_steps=2)
    with pytest.raises(TypeError, match="certificate of an energy with BesideSegments"):
        fwcrf.certificate(E)
    with pytest.raises(ValueError, match=r"segments has shape \(3,\); expected 7 numbers"):
        with_segments(energy(), [0, 1, 2])
    with pytest.raises(TypeError, match="segments has dtype"):
        with_segments(energy(), torch.zeros(N))
    with pytest.raises(ValueError, match="tolerance=0"):
        with_segments(energy(), IDS, tolerance=0)
