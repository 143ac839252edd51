"""Certificates of dense models: no optimum loses a label, no labelling is below the bound."""

import itertools

import pytest
import torch
from helpers import normal, points

import fwcrf
from fwcrf.compatibility import Full, Potts
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Exact, Operator, Spatial
from fwcrf.pairwise import Matrix, dense, of_image

N, L = 7, 3
COMPATIBILITIES = {
    "potts": 1.0,
    "per label": Potts(torch.tensor([0.5, 1.0, 2.0]).double()),
    "full": Full((lambda a: a + a.mT)(normal(L, L, seed=3))),
}


def energy(compat, scale, seed, forbidden=False):
    kernels = [Exact(points(N, 2, seed=seed)), Exact(points(N, 3, seed=seed + 1))]
    unary = scale * normal(N, L, seed=seed + 2)
    if forbidden:
        unary[0, 1:] = unary[1, 0] = torch.inf
    return Energy(dense(kernels, L, weights=[0.4, 0.8], compat=compat), unary)


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("kind", COMPATIBILITIES)
def test_against_enumeration(kind, forbidden):
    out = 0
    for seed, scale in enumerate((1.0, 3.0, 6.0, 12.0)):
        E = energy(COMPATIBILITIES[kind], scale, seed, forbidden)
        every, energies = values(E)
        found = fwcrf.certificate(E)
        best = every[energies <= energies.min() + 1e-12]
        for labels in best:
            assert bool(found.allowed[torch.arange(N), labels].all())
        assert float(found.bound) <= float(energies.min())
        if bool(found.settled.all()):
            assert float(found.bound) == pytest.approx(float(energies.min()), abs=1e-6)
        out += int((~found.allowed & (E.unary < torch.inf)).sum())
    assert out > 20


def test_later_rounds_settle_more():
    """The first pixel is sure, and decides the second one, which decides the third one."""
    apart = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])

    class Chain(Operator):
        n, batch_shape, example = 3, torch.Size(), torch.zeros(1)

        def apply(self, x):
            return apart @ x

        def diagonal(self):
            return torch.zeros(3)

        @property
        def T(self):
            return self

    u = torch.tensor([[0.0, 9.0], [0.0, 0.5], [0.0, 0.5]])
    E = Energy(dense([Chain()], 2), u)
    settled = [int(fwcrf.certificate(E, rounds=k).settled.sum()) for k in (0, 1, 2, 3)]
    assert settled[0] == 0 and settled[1] == 1 and settled[3] == 3


def test_an_image():
    image = torch.rand(40, 50, 3, generator=torch.Generator().manual_seed(0)).numpy() * 255
    P = of_image([Spatial(3), Bilateral(20, 30)], image, 4)
    unary = 3 * normal(2000, 4, dtype=torch.float32)
    E = Energy(P, unary)
    found = fwcrf.certificate(E)
    best = fwcrf.minimize(E, "anneal-fw", num_steps=5, rounding="bcd")
    assert float(found.bound) <= float(best.energy)
    assert bool((best.labels == found.allowed.int().argmax(-1))[found.settled].all())
    assert 0.1 < float(found.settled.float().mean()) < 1


def values(E):
    """E of all labellings."""
    every = torch.tensor(list(itertools.product(range(L), repeat=N)))
    x = torch.nn.functional.one_hot(every, L).double()
    own = E.unary.expand_as(x).gather(-1, every[..., None]).sum((-2, -1))
    return every, 0.5 * (x * E.pairwise(x)).sum((-2, -1)) + own


@pytest.mark.parametrize("normalization", ["before", "after"])
def test_kernels_that_are_not_symmetric(normalization):
    """A change of a pixel's label counts its row and its column, halved."""
    for seed in range(6):
        K = Exact(2 * points(N, 2, seed=seed)).normalized(normalization)
        E = Energy(dense([K], L, weights=[6.0]), 2.5 * normal(N, L, seed=seed + 9))
        every, energies = values(E)
        found = fwcrf.certificate(E)
        assert bool(found.allowed[torch.arange(N), every[energies.argmin()]].all())
        assert float(found.bound) <= float(energies.min())


def test_steps_raise_the_bound_of_strong_edges():
    """Where hardly a label can be left out. The bound of the convexified energy is looser still."""
    gaps = []
    for seed in range(6):
        E = energy([Potts(torch.tensor(w).double()) for w in (2.0, 3.0)], 2.0, seed, forbidden=seed % 2 == 1)
        least = float(values(E)[1].min())
        bounds = [float(fwcrf.certificate(E, steps=steps).bound) for steps in (0, 1, 12, 100)]
        assert bounds == sorted(bounds) and bounds[-1] <= least
        convex = fwcrf.minimize(E, "convex-fw", num_steps=50, trace=True).trace[-1]
        assert float(convex.value - convex.gap) < bounds[0]
        gaps.append([least - bound for bound in bounds])
    before, _, after, long = torch.tensor(gaps).mean(0).tolist()
    assert after < 0.6 * before and long < 0.4 * before


def test_images_of_a_batch_have_the_bounds_that_they_have_alone():
    E = energy(2.0, 2.0, 1)
    two = fwcrf.certificate(Energy(E.pairwise, torch.stack([E.unary, 2 * E.unary])))
    for k in range(2):
        alone = fwcrf.certificate(Energy(E.pairwise, (k + 1) * E.unary))
        assert float(two.bound[k]) == pytest.approx(float(alone.bound), abs=1e-9)


@pytest.mark.parametrize("kind", COMPATIBILITIES)
def test_the_bound_of_a_solution(kind):
    E = energy(COMPATIBILITIES[kind], 3.0, 1)
    found = fwcrf.minimize(E, "l2fw", num_steps=3)
    assert float(found.bound) <= float(values(E)[1].min()) <= float(found.energy) + 1e-9
    assert float(found.bound) == float(fwcrf.certificate(E, rounds=1, steps=0).bound)
    two = Energy(E.pairwise, torch.stack([E.unary, 2 * E.unary]))
    both = fwcrf.minimize(two, "l2fw", num_steps=3).bound
    assert float(both[0]) == pytest.approx(float(found.bound), abs=1e-9)


def test_a_bound_with_terms_over_segments():
    E = energy(1.0, 3.0, 1)
    found = fwcrf.minimize(fwcrf.segments.with_segments(E, [0, 0, 0, 1, 1, 1, 1]), "l2fw", num_steps=3)
    assert float(found.bound) == float(fwcrf.minimize(E, "l2fw", num_steps=3).bound)


def test_no_bound_where_none_is_known():
    class Unknown(Exact):
        nonnegative = False

    kernels = [Unknown(points(N, 2)), Exact(points(N, 2, seed=1))]
    E = Energy(dense(kernels, L), normal(N, L))
    assert fwcrf.minimize(E, "mf", num_steps=1).bound is None
    E = Energy(dense(kernels[1:], L, self_edges=True), normal(N, L))
    assert fwcrf.minimize(E, "mf", num_steps=1).bound is None
    E = Energy(Matrix(torch.eye(6), 3), torch.zeros(2, 3))
    assert fwcrf.minimize(E, "mf", num_steps=1).bound is None


def test_refusals():
    with pytest.raises(TypeError, match="certificate of an energy with Matrix"):
        fwcrf.certificate(Energy(Matrix(torch.eye(6), 3), torch.zeros(2, 3)))
    E = Energy(dense([Exact(points(4, 2))], 2, self_edges=True), normal(4, 2))
    with pytest.raises(ValueError, match="self-edges"):
        fwcrf.certificate(E)
