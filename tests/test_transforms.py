"""torch.func, torch.compile with learned settings, torch.jit.trace, and copies of solutions."""

import copy
import io
import pickle

import pytest
import torch
from torch.func import functional_call, grad, jacrev, vmap

import fwcrf
from fwcrf.kernels import Bilateral, Gaussian, Spatial

GRID = (5, 6)
KERNELS = {
    "lattice": (Spatial(2.0), Bilateral(6.0, 80.0)),
    "exact": (Spatial(2.0, method="exact"), Bilateral(6.0, 80.0, method="exact")),
}


def scene(*batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    image = torch.rand(*batch, 3, *GRID, generator=generator) * 120
    return image, torch.randn(*batch, 3, *GRID, generator=generator)


def loss_of(crf):
    return lambda image, logits: crf(image, logits).square().sum()


@pytest.fixture(params=KERNELS)
def crf(request):
    return fwcrf.DenseCRF(3, kernels=KERNELS[request.param], num_steps=3)


# --- torch.func ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [0, 1], ids=["image", "logits"])
def test_grad_is_the_gradient_of_autograd(crf, argument):
    given = scene()
    inputs = [t.clone().requires_grad_(i == argument) for i, t in enumerate(given)]
    (expected,) = torch.autograd.grad(loss_of(crf)(*inputs), inputs[argument])
    # The engine, which autograd uses for logits, computes spatial kernels on a coarser grid: to 1e-4.
    torch.testing.assert_close(grad(loss_of(crf), argnums=argument)(*given), expected, atol=2e-3, rtol=1e-2)


def test_vmap_over_a_batch_of_images_and_logits(crf):
    image, logits = scene(4)
    expected = torch.stack([crf(i, u) for i, u in zip(image, logits, strict=True)])
    torch.testing.assert_close(vmap(crf)(image, logits), expected, atol=2e-5, rtol=1e-4)


def test_vmap_over_logits_of_one_image(crf):
    image, logits = scene(4)
    expected = torch.stack([crf(image[0], u) for u in logits])
    torch.testing.assert_close(vmap(crf, (None, 0))(image[0], logits), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("argument", [0, 1], ids=["image", "logits"])
def test_gradients_per_sample(crf, argument):
    image, logits = scene(2)
    slope = grad(loss_of(crf), argnums=argument)
    expected = torch.stack([slope(i, u) for i, u in zip(image, logits, strict=True)])
    torch.testing.assert_close(vmap(slope)(image, logits), expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("argument", [0, 1], ids=["image", "logits"])
def test_jacrev_is_the_jacobian_of_autograd(crf, argument):
    given = scene()

    def first(*inputs):
        return crf(*inputs)[0, 0]

    def of(t):
        return first(*(t if i == argument else other for i, other in enumerate(given)))

    expected = torch.autograd.functional.jacobian(of, given[argument])
    torch.testing.assert_close(jacrev(first, argnums=argument)(*given), expected, atol=2e-5, rtol=1e-4)


def test_functional_call_differentiates_parameters():
    crf = fwcrf.DenseCRF(
        3, num_steps=3, learnable=("weights", "compatibility", "lambda", "steps", "bandwidths")
    )
    given = scene()
    parameters = dict(crf.named_parameters())
    found = grad(lambda p: functional_call(crf, p, given).square().sum())(
        {name: p.detach() for name, p in parameters.items()}
    )
    expected = torch.autograd.grad(loss_of(crf)(*given), list(parameters.values()))
    for (name, one), other in zip(found.items(), expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3, msg=lambda m, name=name: f"{name}: {m}")


def test_vmap_over_features_of_an_operator():
    features, x = torch.rand(3, 12, 2) * 3, torch.rand(12, 2)
    for method in ("lattice", "exact"):
        K = Gaussian(method=method)
        expected = torch.stack([K.operator(f)(x) for f in features])
        found = vmap(lambda f, K=K: K.operator(f)(x))(features)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


# --- tracers ---------------------------------------------------------------------------------------------


def test_jit_trace_is_refused_with_a_remedy():
    image, logits = scene()
    with pytest.raises(RuntimeError, match=r"torch\.jit\.trace.*torch\.export\.export or torch\.compile"):
        torch.jit.trace(fwcrf.DenseCRF(3), (image, logits))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of torch's compiler
@pytest.mark.parametrize("learnable", [("lambda",), ("steps", "weights", "skip")])
def test_a_compiled_layer_learns_the_same(learnable):
    crf = fwcrf.DenseCRF(3, learnable=learnable, num_steps=3)
    image, logits = scene()
    parameters = list(crf.parameters())
    expected = torch.autograd.grad(loss_of(crf)(image, logits), parameters)
    torch._dynamo.reset()
    compiled = torch.compile(crf, backend="aot_eager")
    found = torch.autograd.grad(loss_of(compiled)(image, logits), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


# --- copies of solutions ---------------------------------------------------------------------------------


def through_torch_save(value):
    memory = io.BytesIO()
    torch.save(value, memory)
    memory.seek(0)
    return torch.load(memory, weights_only=False)


WAYS = {
    "pickle": lambda s: pickle.loads(pickle.dumps(s)),
    "deepcopy": copy.deepcopy,
    "save": through_torch_save,
}


def solutions():
    image, logits = scene()
    unary, edges = torch.rand(5, 3), torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]])
    mrf = fwcrf.SparseMRF(unary, edges, 0.5)
    layer = fwcrf.DenseCRF(3, learnable=("weights",))
    yield "layer", layer.solve(image, logits.clone().requires_grad_(), trace=True)
    yield "engine", layer.solve(image, logits.clone().requires_grad_(), rounding="bcd")
    yield "graph", mrf.solve(num_steps=5, restarts=2)
    yield "relaxation", mrf.solve(solver="lp-trw", num_steps=5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_a_copy_of_a_solution_shows_the_same(way, read):
    for name, given in solutions():
        if read:
            assert given.labels.dim() and given.energy is not None
        found = WAYS[way](given)
        assert torch.equal(found.probabilities, given.probabilities), name
        assert torch.equal(found.labels, given.labels) and torch.equal(found.energy, given.energy), name
        assert (found.engine, found.converged) == (given.engine, given.converged)
        assert len(found.trace or ()) == len(given.trace or ())
        for one, other in zip(found.trace or (), given.trace or (), strict=True):
            assert torch.equal(one.energy, other.energy) and one.k == other.k
        if hasattr(given, "bound"):
            assert (given.bound is None and found.bound is None) or torch.equal(found.bound, given.bound)
