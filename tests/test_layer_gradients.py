"""Gradients of the layer: exact, whatever is learned and however they are found."""

import gc
import warnings
from functools import partial

import pytest
import torch
from crfs import GRID, L, crf, image, logits, quotients, slopes, verdict
from helpers import normal

import fwcrf
from fwcrf import DenseCRF, solvers
from fwcrf.gradients import Checkpoint, Implicit, Unrolled, bicgstab
from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.layer import LEARNABLE
from fwcrf.solvers.plan import Plan, plan

# Fixed points and linear systems solved to this accuracy.
TIGHT = Implicit(tol=1e-12, max_steps=2000)
MODES = {"unrolled": Unrolled(), "checkpoint": Checkpoint(), "implicit": TIGHT}
# Along random directions, which any error shows in.
gradcheck = partial(torch.autograd.gradcheck, fast_mode=True)
gradgradcheck = partial(torch.autograd.gradgradcheck, fast_mode=True)
every_mode = pytest.mark.parametrize("gradient", MODES.values(), ids=MODES)


def inside(layer: DenseCRF) -> DenseCRF:
    """Away from the ends of the intervals, where a difference quotient would see both sides."""
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.startswith("raw"):
                p.copy_(torch.linspace(0.4, 0.7, p.numel()).view(p.shape))
    return layer


def as_function(layer: DenseCRF):
    """Three random projections of the probabilities, as a function of image, logits and parameters."""
    names = [name for name, _ in layer.named_parameters()]

    def apply(photo, z, *values):
        parameters = dict(zip(names, values, strict=True))
        answer = torch.func.functional_call(layer, parameters, (photo, z)).exp().flatten()
        return answer @ normal(len(answer), 3, seed=7)

    return apply, tuple(p.detach().clone().requires_grad_() for p in layer.parameters())


# --- against difference quotients -----------------------------------------------------------------


# A fixed point does not depend on the steps that lead to it.
LEARNED = [(name, mode) for name in LEARNABLE for mode in MODES if (name, mode) != ("steps", "implicit")]


@pytest.mark.parametrize(("name", "mode"), LEARNED)
@pytest.mark.parametrize("solver", ["l2fw", "efw"])
def test_each_learnable(name, mode, solver):
    gradient = MODES[mode]
    own = solvers.get(solver, weight=2.0)
    layer = inside(crf(solver=own, learnable=(name,), skip=0.4, num_steps=3, gradient=gradient))
    apply, values = as_function(layer)
    photo, z = image(), logits()
    assert gradcheck(lambda *v: apply(photo, z, *v), values)


@every_mode
@pytest.mark.parametrize("solver", ["l2fw", "efw"])
def test_image_and_logits(solver, gradient):
    layer = crf(solver=solvers.get(solver, weight=2.0), num_steps=3, gradient=gradient)
    apply, _ = as_function(layer)
    inputs = image(2).requires_grad_(), logits(2).requires_grad_()
    assert gradcheck(apply, inputs)


@pytest.mark.parametrize("kind", ["scalar", "label", "full"])
@pytest.mark.parametrize("learnable", [("weights",), ("weights", "compatibility")], ids=str)
def test_each_kind_of_weights(kind, learnable):
    layer = crf(solver="efw", learnable=learnable, weights=kind, num_steps=2)
    apply, values = as_function(layer)
    photo, z = image(), logits()
    assert gradcheck(lambda *v: apply(photo, z, *v), values)


@pytest.mark.parametrize("normalization", ["symmetric", "none", "before", "after"])
@pytest.mark.parametrize("method", ["lattice", "exact"])
def test_bandwidths_and_image_for_each_kernel(method, normalization):
    some = [
        Spatial(1.21, method="separable", normalization=normalization),
        Spatial(1.37, method=method, normalization=normalization),
        Bilateral((2.93, 2.1), (0.37, 0.4, 0.5), method=method, normalization=normalization),
    ]
    layer = crf(kernels=some, solver="efw", learnable=("bandwidths",), num_steps=2)
    apply, values = as_function(layer)
    z = logits()
    assert gradcheck(lambda photo, *v: apply(photo, z, *v), (image().requires_grad_(), *values))


def test_learned_feature_maps():
    layer = crf(kernels=[Gaussian(weight=2.0)], solver="efw", num_steps=2)
    z = logits()
    features = (2 * image(channels=4)).requires_grad_()
    assert gradcheck(lambda F: as_function(layer)[0](F, z), (features,))


def test_three_grid_axes():
    layer = crf(spatial_dims=3, solver="efw", learnable=("bandwidths", "weights"), num_steps=2)
    apply, values = as_function(layer)
    grid = (2, 3, 3)
    photo, z = image(grid=grid), logits(grid=grid).requires_grad_()
    assert gradcheck(lambda z, *v: apply(photo, z, *v), (z, *values))


@pytest.mark.parametrize("solver", ["l2fw", "efw"])
def test_everything_learned_is_native_and_exact(solver):
    own = solvers.get(solver, weight=2.0)
    layer = inside(crf(solver=own, learnable=LEARNABLE, weights="full", skip=0.4, num_steps=3))
    photo, z = image().requires_grad_(), logits().requires_grad_()
    assert isinstance(plan(layer.energy(photo, z), layer._solver(), None, 3), Plan)
    apply, values = as_function(layer)
    assert gradcheck(apply, (photo, z, *values))
    assert gradgradcheck(lambda z, *v: apply(photo.detach(), z, *v), (z, *values))


def test_second_derivatives():
    layer = inside(crf(solver="efw", learnable=("weights", "lambda", "steps"), num_steps=2))
    apply, values = as_function(layer)
    photo, z = image(), logits().requires_grad_()
    assert gradgradcheck(lambda z, *v: apply(photo, z, *v), (z, *values))


@pytest.mark.parametrize("labels", [1, 2])
def test_binary(labels):
    layer = crf(labels, solver="efw", learnable=("weights",), num_steps=3)
    apply, values = as_function(layer)
    photo, z = image(), logits(labels=labels).requires_grad_()
    assert gradcheck(lambda z, *v: apply(photo, z, *v), (z, *values))


# --- L_f, the largest eigenvalue of P ---------------------------------------------------------------

LEARNED_MATRICES = {
    "weights per label": {"learnable": ("weights", "bandwidths"), "weights": "label"},
    "full": {"learnable": ("weights", "compatibility", "bandwidths"), "weights": "full", "noise": 0.3},
    "repulsive": {"learnable": ("weights", "bandwidths"), "compatibility": -1.0},
    "potts": {"learnable": ("compatibility", "weights", "bandwidths")},
}
USERS_OF_L = {
    "cmf1": "cmf1",
    "cmf2": "cmf2",
    "cccp-qp2": "cccp-qp2",
    "adaptive": solvers.get("efw", step=fwcrf.stepsizes.Adaptive()),
    "adaptive cmf1": solvers.get("cmf1", step=fwcrf.stepsizes.Adaptive()),
}


# Not "adaptive" with "potts": its eigenvalue is a multiple one, a kink in the compatibility.
THROUGH_L = [
    *((solver, kind) for solver in ("cmf1", "cccp-qp2") for kind in LEARNED_MATRICES),
    *(("adaptive", kind) for kind in ("weights per label", "full", "repulsive")),
    *((solver, "full") for solver in ("cmf2", "adaptive cmf1")),
]


@pytest.mark.parametrize(("solver", "kind"), THROUGH_L)
def test_gradients_through_the_largest_eigenvalue(solver, kind):
    """A and the adaptive step depend on L_f, and so on every parameter of P."""
    torch.manual_seed(0)
    layer = crf(solver=USERS_OF_L[solver], method="exact", num_steps=3, **LEARNED_MATRICES[kind])
    with torch.no_grad():
        if kind == "weights per label":  # different ones: equal weights make it a multiple eigenvalue
            layer.weights.mul_(torch.linspace(0.6, 1.4, layer.weights.numel()).view_as(layer.weights))
    expected = quotients(layer, image(), logits())
    for name, slope in slopes(layer, image(), logits()).items():
        assert verdict(slope, expected[name]) == "right", name


def test_the_largest_eigenvalue_is_the_same_with_and_without_gradients():
    layer = crf(solver="cmf1", learnable=("weights",), weights="full", noise=0.3)
    with torch.no_grad():
        alone = layer(image(), logits())
    torch.testing.assert_close(layer(image(), logits()).detach(), alone, rtol=1e-12, atol=1e-12)


def test_the_largest_eigenvalue_has_first_derivatives_only():
    layer = crf(solver="cmf1", learnable=("weights",), weights="full", noise=0.3)
    with pytest.raises(RuntimeError, match=r"largest eigenvalue.*first derivatives only"):
        torch.autograd.grad(layer(image(), logits()).exp().square().sum(), layer.weights, create_graph=True)


def test_an_eigenvalue_that_has_not_converged_gives_a_warning(monkeypatch):
    few = partial(fwcrf.spectrum.largest_eigenvalue, max_steps=3)
    monkeypatch.setattr(fwcrf.energy, "largest_eigenvalue", few)
    layer = crf(solver="cmf1", learnable=("weights",), weights="full", noise=0.3)
    with pytest.warns(UserWarning, match="after 3 steps of Lanczos"):
        layer(image(), logits())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(image(), logits())


# --- one way against another ----------------------------------------------------------------------


def gradients(layer: DenseCRF, photo, z) -> list:
    photo, z = photo.detach().requires_grad_(), z.detach().requires_grad_()
    layer.zero_grad()
    (layer(photo, z).exp() * normal(*z.shape, seed=9)).sum().backward()
    return [photo.grad, z.grad, *(p.grad.clone() for p in layer.parameters())]


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("solver", ["l2fw", "efw", "fista", "emd", "admm", "cmf1"])
def test_checkpoints_change_nothing(solver, num_steps):
    learnable = ("weights", "skip", "bandwidths")
    layers = [
        crf(solver=solver, learnable=learnable, skip=0.5, num_steps=num_steps, gradient=g)
        for g in ("unrolled", "checkpoint")
    ]
    photo, z = image(2), logits(2)
    # One runs in the engine, the other step by step: the same to rounding.
    torch.testing.assert_close(layers[0](photo, z), layers[1](photo, z), rtol=1e-10, atol=1e-12)
    if num_steps == 0:
        return
    for a, b in zip(*(gradients(layer, photo, z) for layer in layers), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [fwcrf.stepsizes.LineSearch(), fwcrf.stepsizes.Adaptive()], ids=repr)
def test_checkpoints_with_steps_that_look(rule):
    layers = [
        crf(solver=solvers.get("l2fw", step=rule), learnable=("weights",), num_steps=4, gradient=g)
        for g in ("unrolled", "checkpoint")
    ]
    photo, z = image(2), logits(2)
    for a, b in zip(*(gradients(layer, photo, z) for layer in layers), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weight", [0.5, 1.0])
@pytest.mark.parametrize("solver", ["l2fw", "efw"])
def test_implicit_gradients_are_those_of_many_steps(solver, weight):
    """To 1e-7 of the largest entry, for points and systems solved to 1e-12."""
    learnable = ("weights", "compatibility", "lambda", "skip", "bandwidths")
    own = solvers.get(solver, weight=weight, step=0.7)
    many = crf(solver=own, learnable=learnable, skip=0.4, num_steps=100)
    implicit = crf(solver=own, learnable=learnable, skip=0.4, gradient=TIGHT)
    photo, z = image(2), logits(2)
    for a, b in zip(*(gradients(layer, photo, z) for layer in (many, implicit)), strict=True):
        assert float((a - b).abs().max()) <= 1e-7 * max(1e-3, float(a.abs().max()))


def test_implicit_gradients_do_not_depend_on_the_way_to_the_fixed_point():
    photo, z = image(2), logits(2)
    rules = [1.0, 0.4, [0.5, 1.0]]
    found = [
        gradients(
            crf(solver=solvers.get("efw", weight=1.5, step=r), learnable=("weights",), gradient=TIGHT),
            photo,
            z,
        )
        for r in rules
    ]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-7, atol=1e-8)


def test_implicit_in_float32_to_its_default_tolerance():
    layers = [
        crf(dtype=torch.float32, learnable=("weights", "lambda"), num_steps=n, gradient=g)
        for n, g in ((200, "unrolled"), (5, "implicit"))
    ]
    photo, z = image(2, dtype=torch.float32), logits(2, dtype=torch.float32)
    for a, b in zip(*(gradients(layer, photo, z) for layer in layers), strict=True):
        torch.testing.assert_close(b, a, rtol=2e-3, atol=2e-3 * float(a.abs().max()))


def test_a_point_that_is_not_fixed_gives_a_warning():
    layer = crf(learnable=("weights",), gradient=Implicit(tol=1e-10, max_steps=1))
    with pytest.warns(UserWarning, match="no fixed point was reached in 1 steps.*larger weight"):
        answer = layer(image(), logits())
    with pytest.warns(UserWarning, match="linear system.*after 1 iterations"):
        answer.exp().square().sum().backward()


@pytest.mark.parametrize("solver", ["fw", "pgd", "fista", "admm"])
def test_implicit_needs_a_regularized_frank_wolfe_solver(solver):
    with pytest.raises(ValueError, match="expected a regularized Frank-Wolfe solver"):
        crf(solver=solver, gradient="implicit")


def test_implicit_has_first_derivatives_only():
    layer, z = crf(gradient="implicit"), logits().requires_grad_()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(layer(image(), z).exp().square().sum(), z, create_graph=True)


@pytest.mark.parametrize("setting", [{"tol": 0.0}, {"max_steps": 0}], ids=str)
def test_bad_settings_of_implicit(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Implicit(**setting)


def test_bicgstab_solves_one_system_per_image():
    A = torch.eye(6).double() + 0.5 * normal(3, 6, 6)
    b = normal(3, 3, 2)
    b[1] = 0
    w, error = bicgstab(
        lambda x: (A @ x.flatten(1)[..., None]).view(x.shape), b, tol=1e-12, max_iterations=100
    )
    expected = torch.linalg.solve(A, b.flatten(1)[..., None]).view(b.shape)
    assert error <= 1e-10
    torch.testing.assert_close(w, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("A", "b"),
    [
        ([[-1, -1, -2], [2, -1, -2], [-2, -1, 0]], [0, 1, 1]),
        ([[1, 1, 1], [0, -2, 0], [0, -1, -1]], [0, -2, 2]),
        ([[-1, 0, -2, -1], [1, 1, 1, 2], [-2, -1, 1, -2], [-1, -2, 1, -2]], [2, 2, 0, 2]),
    ],
)
def test_bicgstab_starts_again_where_it_breaks_down(A, b):
    """After the first step of these systems the residual is orthogonal to the shadow residual."""
    A, b = torch.tensor(A).double(), torch.tensor(b).double()[None, :, None]
    w, error = bicgstab(lambda x: A @ x, b, tol=1e-12, max_iterations=60)
    assert error <= 1e-10
    torch.testing.assert_close(A @ w, b, rtol=0, atol=1e-9)


# --- memory ---------------------------------------------------------------------------------------


def kept_by(layer: DenseCRF) -> int:
    """Bytes that autograd keeps for the backward pass, beyond those of the inputs."""
    photo, z = image(dtype=torch.float32, grid=(24, 24)), logits(dtype=torch.float32, grid=(24, 24))
    z.requires_grad_()
    kept: dict[int, int] = {}

    def pack(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        layer(photo, z)
    gc.collect()
    return sum(kept.values())


@pytest.mark.parametrize(("gradient", "iterates"), [("checkpoint", 6), ("implicit", 0)])
def test_memory_grows_with_the_square_root_of_the_steps_or_not_at_all(gradient, iterates):
    """From 4 to 64 steps a checkpoint keeps 8 iterates instead of 2: tests/test_checkpoint_memory.py."""

    def of(num_steps, gradient):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kept_by(crf(dtype=torch.float32, num_steps=num_steps, gradient=gradient))

    iterate = 24 * 24 * L * 4
    assert of(64, "unrolled") - of(4, "unrolled") >= 60 * iterate
    assert of(64, gradient) - of(4, gradient) < (iterates + 1) * iterate


# --- stability ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["l2fw", "efw", "mf"])
@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_large_logits_have_finite_gradients(solver, scale):
    layer = crf(dtype=torch.float32, solver=solver, learnable=LEARNABLE, skip=0.5)
    photo, z = image(2, dtype=torch.float32), scale * logits(2, dtype=torch.float32)
    z.requires_grad_()
    target = torch.arange(2 * 20).view(2, *GRID) % L
    torch.nn.functional.nll_loss(layer(photo, z), target).backward()
    for p in (z, *layer.parameters()):
        assert torch.isfinite(p.grad).all()


# At the paper's rates for long, and at a high one, which goes to the ends of all ranges in fewer steps.
@pytest.mark.parametrize(
    "solver, optimizer, rate, steps",
    [
        ("l2fw", torch.optim.SGD, 0.1, 1000),
        ("mf", torch.optim.Adam, 0.01, 1000),
        ("l2fw", torch.optim.Adam, 0.3, 100),
        ("efw", torch.optim.Adam, 0.3, 100),
        ("efw", torch.optim.SGD, 0.3, 100),
        ("mf", torch.optim.SGD, 0.3, 100),
    ],
)
def test_training_on_random_data_without_a_nan(solver, optimizer, rate, steps):
    torch.manual_seed(0)
    learnable = ("weights", "compatibility", "lambda", "steps", "skip")
    layer = DenseCRF(
        L, [Spatial(1.21), Bilateral(2.93, 0.37)], solver=solver, num_steps=3, learnable=learnable,
        weights="full", noise=0.1, skip=0.0 if solver == "mf" else 0.5,
    )  # fmt: skip
    grid = (3, 4)
    descent = optimizer(layer.parameters(), lr=rate)
    for _ in range(steps):
        photo, z = torch.rand(3, *grid), 5 * torch.randn(L, *grid)
        loss = torch.nn.functional.nll_loss(layer(photo, z)[None], torch.randint(L, (1, *grid)))
        descent.zero_grad()
        loss.backward()
        descent.step()
    for p in layer.parameters():
        assert torch.isfinite(p).all() and torch.isfinite(p.grad).all()
