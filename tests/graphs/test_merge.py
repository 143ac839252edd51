"""``rounding="merge"`` against the energies of all merges, one by one."""

import pytest
import torch
from graph_models import model
from helpers import normal, points

import fwcrf
from fwcrf import rounding
from fwcrf.compatibility import Diagonal, Full, Potts
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Exact, Spatial
from fwcrf.pairwise import Matrix, dense, of_image

N, L = 30, 5

COMPATIBILITIES = {
    "potts": 1.3,
    "per label": Potts(torch.tensor([0.5, 1.0, 2.0, 1.0, 0.1]).double()),
    "diagonal": Diagonal(torch.tensor([-1.0, -2.0, 0.5, -1.0, -0.1]).double()),
    "full": Full((lambda a: a + a.mT)(normal(L, L, seed=3))),
    "singular": Full(torch.ones(L, L).double()),
    "two matrices": [Potts(torch.tensor(1.0).double()), Full((lambda a: a + a.mT)(normal(L, L, seed=4)))],
}


def energy(compat, *, scale=1.0, self_edges=False, batch=(), dtype=torch.float64):
    kernels = [Exact(points(N, 2)), Exact(points(N, 3, seed=1))]
    if isinstance(compat, list):
        P = dense(kernels, L, compat=compat, self_edges=self_edges)
    else:
        P = dense(kernels, L, weights=[0.7, 1.5], compat=compat, self_edges=self_edges)
    return Energy(P, scale * normal(*batch, N, L, seed=2, dtype=dtype))


def merges(labels, num_labels=L):
    """All labellings after one merge."""
    for s in labels.unique().tolist():
        for t in range(num_labels):
            yield torch.where(labels == s, t, labels)


def by_hand(E, labels):
    """The best merge first, by energies, as long as one is lower."""
    while True:
        best = min(merges(labels), key=lambda after: float(E.of_labels(after)))
        if float(E.of_labels(best)) >= float(E.of_labels(labels)) - 1e-12:
            return labels
        labels = best


@pytest.mark.parametrize("self_edges", [False, True])
@pytest.mark.parametrize("kind", COMPATIBILITIES)
def test_merges_are_the_best_ones(kind, self_edges):
    changed = 0
    for scale in (0.3, 1.0, 3.0):
        E = energy(COMPATIBILITIES[kind], scale=scale, self_edges=self_edges)
        x = torch.softmax(-E.unary, -1)
        found = rounding.merge(E, x)
        expected = by_hand(E, x.argmax(-1))
        if kind == "potts":
            assert float(E.of_labels(found)) <= float(E.of_labels(expected)) + 1e-9
        else:
            assert torch.equal(found, expected)
        changed += not torch.equal(found, x.argmax(-1))
    assert changed or kind == "singular"


def test_parts_of_labels_move_without_a_further_application_of_p():
    """Never up, mostly down, and in one direction: no label both loses and gains nodes after the mergers."""
    lower = 0
    for seed in range(40):
        kernels = [Exact(1.5 * points(N, 2, seed=seed)), Exact(points(N, 3, seed=seed + 1))]
        P = dense(kernels, L, weights=[0.4, 0.3], self_edges=seed % 2 == 1)
        E = Energy(P, 2.0 * normal(N, L, seed=seed + 2))
        x = torch.softmax(-E.unary, -1)
        found, merged = rounding.merge(E, x), by_hand(E, x.argmax(-1))
        change = float(E.of_labels(found) - E.of_labels(merged))
        assert change <= 1e-9
        moved = found != merged
        assert not set(merged[moved].tolist()) & set(found[moved].tolist())
        lower += change < -1e-6
    assert lower >= 20


@pytest.mark.parametrize("kind", ["asymmetric", "negative entries"])
def test_other_kernels_move_whole_labels_only(kind):
    K = Exact(2 * points(N, 2))
    if kind == "asymmetric":
        K = K.normalized("before")
    else:
        K = K.scaled(torch.where(torch.arange(N) % 2 == 0, -1.0, 1.0).double())
    for seed in range(5):
        E = Energy(dense([K], L, weights=[2.0]), normal(N, L, seed=seed))
        x = torch.softmax(-E.unary, -1)
        assert torch.equal(rounding.merge(E, x), by_hand(E, x.argmax(-1)))


def test_a_batch_is_its_images():
    E = energy(1.0, scale=0.5, batch=(2,))
    x = torch.softmax(-E.unary, -1)
    found = rounding.merge(E, x)
    for k in range(2):
        assert torch.equal(found[k], rounding.merge(Energy(E.pairwise, E.unary[k]), x[k]))


def test_forbidden_labels_are_not_taken():
    E = energy(3.0, scale=0.2)
    unary = E.unary.clone()
    unary[0, 1:] = torch.inf
    unary[1, [0, 2, 3, 4]] = torch.inf
    E = Energy(E.pairwise, unary)
    labels = rounding.merge(E, torch.softmax(-unary, -1))
    assert labels[0] == 0 and labels[1] == 1
    assert torch.isfinite(E.of_labels(labels))
    assert float(E.of_labels(labels)) < float(E.of_labels(unary.argmin(-1)))


@pytest.mark.parametrize("kind", ["one weight", "weights", "linear", "quadratic", "matrix"])
def test_graphs_whose_edges_share_a_matrix(kind):
    mrf = model(kind)
    x = torch.softmax(-mrf.unary, -1)
    found = mrf.solve("l2fw", 0, "merge", x0=x).labels
    best = x.argmax(-1)
    while True:
        after = min(merges(best, 3), key=lambda labels: float(mrf.value(labels)))
        if float(mrf.value(after)) >= float(mrf.value(best)) - 1e-12:
            break
        best = after
    assert torch.equal(found, best)


def test_refusals():
    for P in (Matrix(normal(6, 6), 3), model("tables").energy().pairwise):
        E = Energy(P, normal(P.to_dense().shape[-1] // 3, 3))
        with pytest.raises(ValueError, match=r"rounding='merge' with .*Use rounding='bcd'"):
            rounding.merge(E, torch.softmax(-E.unary, -1))
    with pytest.raises(ValueError, match="expected nearest, bcd, merge"):
        rounding.get("merg")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_image_with_one_application_of_p(dtype, monkeypatch):
    """Scores with a weak third label, which only a merge removes at once."""
    generator = torch.Generator().manual_seed(0)
    image = (255 * torch.rand(3, 24, 32, generator=generator)).to(dtype)
    P = of_image([Bilateral(20, 60, weight=2.0), Spatial(3)], image, 3)
    unary = 0.5 * torch.randn(24 * 32, 3, generator=generator).to(dtype)
    E = Energy(P, unary)
    x = torch.softmax(-unary, -1)
    count = []
    apply = type(P).__call__
    monkeypatch.setattr(type(P), "__call__", lambda self, x: count.append(1) or apply(self, x))
    labels = rounding.merge(E, x)
    assert len(count) == 1
    assert float(E.of_labels(labels)) < float(E.of_labels(x.argmax(-1))) - 1
    assert torch.equal(fwcrf.minimize(E, "l2fw", x, num_steps=0, rounding="merge").labels, labels)


@pytest.mark.parametrize("kind", COMPATIBILITIES)
def test_mergers_of_points_inside_lower_the_energy_and_give_its_gradient(kind):
    changed = 0
    for scale in (0.3, 1.0, 3.0):
        E = energy(COMPATIBILITIES[kind], scale=scale)
        x = torch.softmax(-2 * E.unary, -1)
        y, grad = rounding.merged(E, x)
        torch.testing.assert_close(grad, E.grad(y), rtol=0, atol=1e-9)
        torch.testing.assert_close(y.sum(-1), x.sum(-1))
        changed += not torch.equal(x, y)

        def after(s, t, y=y):
            """y with label t in place of s."""
            z = y.clone()
            z[:, t] += z[:, s] * (s != t)
            z[:, s] *= s == t
            return z

        least = min(float(E.value(after(s, t))) for s in range(L) for t in range(L))
        assert float(E.value(y)) <= float(E.value(x)) + 1e-9
        assert least >= float(E.value(y)) - 1e-9
    assert changed or kind == "singular"  # a constant, without which the likely labels are the best ones


def test_annealing_with_mergers_takes_no_more_applications():
    """A weak third label: gone with mergers before the last step, of each image of a batch as alone."""
    unary = normal(2, N, 3, seed=2)
    unary[..., 2] -= 0.4
    P = dense([Exact(points(N, 2))], 3, weights=[1.5])
    E = Energy(P, unary)
    plain, merging = (fwcrf.solvers.get("anneal-fw", steps=4, merge=on) for on in (False, True))
    traced = fwcrf.minimize(E, merging, num_steps=4, trace=True)
    found = fwcrf.minimize(E, merging, num_steps=4)
    assert torch.equal(traced.probabilities, found.probabilities)
    assert bool((found.energy <= fwcrf.minimize(E, plain, num_steps=4).energy + 1e-9).all())
    for k in range(2):
        alone = fwcrf.minimize(Energy(P, unary[k]), merging, num_steps=4)
        torch.testing.assert_close(alone.probabilities, found.probabilities[k])


def test_annealing_with_mergers_is_differentiable():
    u = normal(8, 3, seed=4).requires_grad_()
    P = dense([Exact(points(8, 2))], 3)

    def marginals(unary):
        return fwcrf.minimize(
            Energy(P, unary),
            fwcrf.solvers.get("anneal-fw", steps=3, start=1.0, end=0.5, merge=True),
            num_steps=3,
        ).probabilities

    assert torch.autograd.gradcheck(marginals, (u,), atol=1e-6)


def test_mergers_need_matrices_over_labels():
    E = Energy(Matrix(normal(12, 12, seed=1), num_labels=3), normal(4, 3))
    with pytest.raises(ValueError, match=r"a solver with merge=True with Matrix; .*Use merge=False"):
        fwcrf.minimize(E, fwcrf.solvers.get("anneal-fw", steps=2, merge=True), num_steps=2)
