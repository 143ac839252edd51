import numpy as np
import pytest
import skimage.data
import torch
from helpers import normal, points
from torch.nn.functional import avg_pool2d, interpolate
from torch.testing import assert_close

import fwcrf
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Exact, Spatial
from fwcrf.pairwise import Pairwise, dense, of_image
from fwcrf.regularizers import Entropy, SquaredL2
from fwcrf.solvers import AnnealedFrankWolfe

N, L = 7, 3


def energy(weight=1.0, num_labels=L, compat=1.0):
    P = dense([Exact(points(N, 2))], num_labels, weights=[weight], compat=compat)
    return Energy(P, normal(N, num_labels, seed=1))


def solve(E, num_steps=5, **settings):
    start = torch.softmax(-E.unary, -1)
    return fwcrf.minimize(E, AnnealedFrankWolfe(**settings), start, num_steps=num_steps).probabilities


class Counted(Pairwise):
    def __init__(self, inner):
        self.inner, self.calls = inner, 0

    def __call__(self, x):
        self.calls += 1
        return self.inner(x)

    def to_dense(self):
        return self.inner.to_dense()


def test_is_known_by_name():
    assert fwcrf.solvers.get("anneal-fw") == AnnealedFrankWolfe()
    assert fwcrf.solvers.get("anneal-fw", steps=9, end=0.1) == AnnealedFrankWolfe(steps=9, end=0.1)
    with pytest.raises(ValueError, match="expected steps, start, end"):
        fwcrf.solvers.get("anneal-fw", weight=1.0)
    with pytest.raises(ValueError, match="start=-1"):
        fwcrf.solvers.get("anneal-fw", start=-1.0)


def test_applies_p_once_per_step():
    E = energy()
    P = Counted(E.pairwise)
    solve(Energy(P, E.unary), num_steps=5)
    assert P.calls == 5


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_is_the_formula(scale):
    """Against the matrix, where P is Potts and unary and pairwise part share a scale that must not matter."""
    E = energy(scale)
    P, u = E.pairwise.to_dense(), E.unary * scale
    grads, xs = [], [torch.softmax(-u, -1)]
    about_mean = torch.eye(L, dtype=u.dtype) - 1 / L
    for k in range(5):
        message = (P @ xs[k].flatten()).view(N, L)
        grads.append(message + u)
        w = 0.3 * (0.1 / 0.3) ** (k / 4)
        if k == 0:
            s = (message @ about_mean).norm() / (xs[0] @ about_mean).norm()
            c = grads[0] + w * (message + s * xs[0])
        else:
            c = 2 * grads[k] - grads[k - 1] + w * s * (xs[k] - xs[k - 1])
        xs.append(torch.softmax(-c / (w * s), -1))
    assert_close(solve(Energy(E.pairwise, u), start=0.3, end=0.1), xs[-1])


def test_strength_of_agreeing_neighbours_is_the_weight():
    """Where all nodes say the same, P x = -s x up to a constant per row, with s the row sums times w."""
    P = dense([Exact(torch.zeros(N, 1, dtype=torch.float64))], L, weights=[2.5])
    E = Energy(P, normal(1, L).expand(N, L).contiguous())
    solver = AnnealedFrankWolfe()
    state = solver.step(E, solver.init(E, torch.softmax(-E.unary, -1)), 0)
    assert_close(state.strength, torch.tensor([[2.5 * (N - 1)]], dtype=torch.float64))


def test_after_the_plan_it_is_entropic_frank_wolfe():
    E = energy(2.0)
    solver = AnnealedFrankWolfe(steps=2)
    state = solver.init(E, torch.softmax(-E.unary, -1))
    for k in range(2):
        state = solver.step(E, state, k)
    after = solver.step(E, state, 2)
    assert_close(after.x, torch.softmax(-E.grad(state.x) / (0.05 * state.strength), -1))


@pytest.mark.parametrize("regularizer", [Entropy, SquaredL2])
def test_a_batch_is_its_images(regularizer):
    P = dense([Exact(points(N, 2))], L)
    scales = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)[:, None, None]
    u = normal(3, N, L) * scales
    together = solve(Energy(P, u), regularizer=regularizer)
    for i in range(3):
        assert_close(together[i], solve(Energy(P, u[i]), regularizer=regularizer))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forbidden_labels_stay_out_and_change_nothing_else(dtype):
    P = dense([Exact(points(N, 2, dtype=dtype))], 4)
    u = normal(N, 4, dtype=dtype)
    u[:, 3] = torch.inf
    u[0, 1:] = torch.inf
    for num_steps in range(1, 8):
        x = solve(Energy(P, u), num_steps=num_steps)
        assert (x[:, 3] == 0).all()
        assert x[0, 0] == 1
        assert (x >= 0).all()
        assert_close(x.sum(-1), torch.ones(N, dtype=dtype))
    # A label that no node may take might as well not exist.
    three = dense([Exact(points(N, 2, dtype=dtype))], 3)
    without = solve(Energy(three, u[:, :3].contiguous()), num_steps=5)
    assert_close(solve(Energy(P, u), num_steps=5)[:, :3], without)


@pytest.mark.parametrize(
    "E",
    [
        energy(0.0),
        energy(num_labels=1),
        Energy(energy().pairwise, torch.zeros(N, L, dtype=torch.float64)),
    ],
    ids=["no pairwise part", "one label", "nothing known"],
)
def test_is_feasible_where_nothing_can_be_weighed(E):
    x = solve(E)
    assert torch.isfinite(x).all()
    assert_close(x.sum(-1), torch.ones(N, dtype=x.dtype))
    assert torch.equal(x.argmax(-1), solve(E, num_steps=0).argmax(-1))


@pytest.mark.parametrize("regularizer", [Entropy, SquaredL2])
def test_derivatives_through_five_steps(regularizer):
    features = points(N, 2)
    features[-1] += 0.3

    def f(u, w, features):
        P = dense([Exact(features)], L, weights=[w])
        E = Energy(P, u)
        return fwcrf.minimize(
            E,
            AnnealedFrankWolfe(start=0.5, end=0.2, regularizer=regularizer),
            torch.softmax(-u, -1),
            num_steps=5,
        ).probabilities

    inputs = (normal(N, L, seed=4), torch.tensor(0.7, dtype=torch.float64), features)
    assert torch.autograd.gradcheck(f, [v.requires_grad_() for v in inputs])


def test_derivatives_with_forbidden_labels_are_finite():
    u = normal(N, L)
    u[0, 1] = u[2, 0] = torch.inf
    u.requires_grad_()
    w = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    x = solve(Energy(dense([Exact(points(N, 2))], L, weights=[w]), u))
    x.square().sum().backward()
    for grad in (u.grad, w.grad):
        assert torch.isfinite(grad).all()
        assert (grad != 0).any()


# --- a photograph ------------------------------------------------------------------------------


def coarse_scores(image, colours=4, seed=0):
    """What a network of stride 8 might say: noisy nearness to a few colours of the image, smoothed."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)
    h, w = image.shape[:2]
    ys = torch.randint(0, h, (colours,), generator=generator)
    xs = torch.randint(0, w, (colours,), generator=generator)
    centres = values[:, ys, xs].T  # (colours, 3)
    nearness = -((values[None] - centres[:, :, None, None]) / 40).square().sum(1)
    pooled = avg_pool2d(nearness[None], 8, ceil_mode=True)
    noisy = pooled + 2 * torch.randn(pooled.shape, generator=generator)
    return interpolate(noisy, (h, w), mode="bilinear")[0]


@pytest.fixture(scope="module", params=["chelsea", "astronaut", "coffee"])
def photograph(request):
    image = getattr(skimage.data, request.param)()[::2, ::2].copy()
    return image, coarse_scores(image)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 10.0)], ids=str)
def test_beats_the_others_at_five_applications(photograph, weights):
    image, logits = photograph
    unary = -logits.flatten(1).T.contiguous()
    kernels = [Spatial(3, weight=weights[0]), Bilateral(80, 13, weight=weights[1])]
    E = Energy(of_image(kernels, image, unary.shape[-1]), unary)
    start = torch.softmax(-unary, -1)

    def reached(name, num_steps=5, **settings):
        solver = fwcrf.solvers.get(name, **settings)
        return float(fwcrf.minimize(E, solver, start, num_steps=num_steps).energy)

    ours = reached("anneal-fw")
    for name in ("mf", "efw", "l2fw", "fw"):
        assert ours < reached(name), name
    # More steps of the right plan do better still.
    assert reached("anneal-fw", num_steps=15, steps=15) < ours


def test_gradients_on_a_photograph_reach_the_scores_and_the_weights(photograph):
    image, logits = photograph
    unary = (-logits).flatten(1).T.contiguous().requires_grad_()
    w = torch.tensor([1.0, 1.0], requires_grad=True)
    P = of_image([Spatial(3, weight=w[0]), Bilateral(80, 13, weight=w[1])], image, unary.shape[-1])
    x = solve(Energy(P, unary))
    # The likelihood of the labels that the scores alone give.
    x.clamp(min=1e-6).log().gather(-1, unary.argmin(-1, keepdim=True)).mean().backward()
    assert unary.grad is not None and w.grad is not None
    assert torch.isfinite(unary.grad).all() and torch.isfinite(w.grad).all()
    assert (unary.grad.abs().sum(-1) > 0).float().mean() > 0.5
    assert (w.grad != 0).all()
