"""Derivatives of the oracles, in c and in the weights, of first and second order."""

import math

import pytest
import torch
from helpers import normal
from listed_regularizers import KINDS, L, listed
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

N = 3

pytestmark = [  # torch.compile does both itself
    pytest.mark.filterwarnings("ignore:.*Function.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]


@listed(differentiable=True)
def test_in_c(case):
    c = normal(N, L, seed=3).requires_grad_()
    assert gradcheck(case.g().argmin, c)
    assert gradgradcheck(case.g().argmin, c)


@listed(differentiable=True)
@pytest.mark.parametrize("per_node", [False, True])
def test_in_the_weights(case, per_node):
    weights = case.per_node(2) if per_node else [torch.tensor(w, dtype=torch.float64) for w in case.weights]
    weights = [w.clone().requires_grad_() for w in weights]
    c = normal(2, 2, L, seed=3).requires_grad_()

    def answer(c, *weights):
        return case.g(L, *weights).argmin(c)

    eps = 1e-7 if min(case.weights) < 0.01 else 1e-6
    assert gradcheck(answer, (c, *weights), eps=eps)
    assert gradgradcheck(answer, (c, *weights), eps=eps, fast_mode=True)


@listed(differentiable=True)
def test_forbidden_labels_have_no_gradient(case):
    weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in case.weights]
    finite = normal(N, L, seed=3)
    forbidden = torch.tensor([False, True, False, False])

    def answer(finite, *weights):
        return case.g(L, *weights).argmin(torch.where(forbidden, math.inf, finite))

    finite.requires_grad_()
    gradients = torch.autograd.grad(answer(finite, *weights).square().sum(), [finite, *weights])
    assert all(torch.isfinite(g).all() for g in gradients)
    assert (gradients[0][:, 1] == 0).all()
    # ... and infinity itself, not only what torch.where hides of it.
    c = torch.where(forbidden, math.inf, finite.detach()).requires_grad_()
    again = torch.autograd.grad(case.g(L, *weights).argmin(c).square().sum(), [c, *weights])
    for a, b in zip(again, gradients, strict=True):
        assert_close(a, b)


@listed(differentiable=True)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_gradient_is_nan_however_large_c(case, dtype):
    for scale in (0.0, 1e-3, 30.0, 1e6):
        weights = [torch.tensor(w, dtype=dtype, requires_grad=True) for w in case.weights]
        c = (scale * normal(40, L)).to(dtype).requires_grad_()
        p = case.g(L, *weights).argmin(c)
        for gradient in torch.autograd.grad(p.square().sum(), [c, *weights]):
            assert torch.isfinite(gradient).all()


@listed(differentiable=True)
def test_float32_gradients_are_those_of_float64(case):
    def gradients(dtype):
        weights = [torch.tensor(w, dtype=dtype, requires_grad=True) for w in case.weights]
        c = normal(N, L, seed=3).to(dtype).requires_grad_()
        p = case.g(L, *weights).argmin(c)
        return torch.autograd.grad((p * normal(N, L, seed=4).to(dtype)).sum(), [c, *weights])

    # The Hessian of a mix of which the entropy is a thousandth is badly conditioned in float32.
    for a, b in zip(gradients(torch.float32), gradients(torch.float64), strict=True):
        assert_close(a.double(), b, rtol=2e-2, atol=1e-4)


@listed(differentiable=True)
def test_function_transforms(case):
    weights = [torch.tensor(w, dtype=torch.float64) for w in case.weights]
    c = normal(5, N, L, seed=3)

    def loss(c, *weights):
        return case.g(L, *weights).argmin(c).pow(3).sum()

    every = tuple(range(1 + len(weights)))
    mapped = torch.func.vmap(torch.func.grad(loss, argnums=every), in_dims=(0, *[None] * len(weights)))
    actual = mapped(c, *weights)
    for i in range(5):
        expected = torch.func.grad(loss, argnums=every)(c[i], *weights)
        for a, b in zip(actual, expected, strict=True):
            assert_close(a[i], b, rtol=0, atol=1e-8)

    # The weights mapped, c not.
    many = [w * torch.tensor([1.0, 1.5], dtype=torch.float64) for w in weights]
    answers = torch.func.vmap(lambda *w: case.g(L, *w).argmin(c[0]))(*many)
    assert_close(answers[1], case.g(L, *(1.5 * w for w in weights)).argmin(c[0]), rtol=0, atol=1e-8)


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@listed(KINDS, differentiable=True)
def test_compiled_without_graph_breaks(case, fresh_compiler):
    weights = [torch.tensor(w, dtype=torch.float64, requires_grad=True) for w in case.weights]
    c = normal(N, L, seed=3).requires_grad_()
    g = case.g(L, *weights)

    def answer(c):
        return g.argmin(2 * c)

    compiled = torch.compile(answer, fullgraph=True, backend="aot_eager")
    assert_close(compiled(c), answer(c), rtol=0, atol=1e-12)
    # A weight times a matrix, in block_quadratic, is part of the graph and computed once.
    expected = torch.autograd.grad(answer(c).pow(3).sum(), [c, *weights], retain_graph=True)
    actual = torch.autograd.grad(compiled(c).pow(3).sum(), [c, *weights])
    for a, b in zip(actual, expected, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-11)


@listed(KINDS, differentiable=True, traceable=True)
def test_made_inside_what_is_compiled(case, fresh_compiler):
    weights = [torch.tensor(w, dtype=torch.float64) for w in case.weights]
    c = normal(N, L, seed=3)

    def answer(c, *weights):
        return case.g(L, *weights).argmin(c)

    compiled = torch.compile(answer, fullgraph=True, backend="aot_eager")
    assert_close(compiled(c, *weights), answer(c, *weights), rtol=0, atol=1e-12)
