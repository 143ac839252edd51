"""Derivatives in x: autograd to second order, and torch.func."""

from dataclasses import replace

import pytest
import torch
from helpers import BASES, KINDS, Case, assert_rounding, normal

from fwcrf.kernels import Lattice

SOME = [Case(base, form) for base in BASES for form in ("plain", "transposed")]
every_kind = pytest.mark.parametrize("case", KINDS, ids=str)
# Operators that wrap another one.
WRAPPED = [*KINDS, Case("exact", "model"), Case("separable-2d", "model"), Case("lattice-5d-native", "model")]
every_wrapped_kind = pytest.mark.parametrize("case", WRAPPED, ids=str)


def cubes(K):
    """A function whose Hessian is not constant: d2/dx2 sum (Kx)^3 = 6 K' diag(Kx) K."""
    return lambda x: K(x).pow(3).sum()


@pytest.mark.parametrize("case", SOME, ids=str)
def test_gradient(case):
    K, x = case.operator(torch.float64), case.x(torch.float64, channels=1).requires_grad_()
    fast = case.kind == "lattice-torch"  # nothing but torch's own derivatives
    assert torch.autograd.gradcheck(K, (x,), fast_mode=fast)
    assert torch.autograd.gradgradcheck(K, (x,), fast_mode=fast)


@pytest.mark.parametrize("case", SOME, ids=str)
def test_gradient_is_the_transpose(case):
    K, x, g = (
        case.operator(torch.float64),
        case.x(torch.float64).requires_grad_(),
        case.x(torch.float64, seed=5),
    )
    (gradient,) = torch.autograd.grad(K(x), x, g)
    assert_rounding(gradient, K.T(g))


@every_wrapped_kind
def test_second_derivative(case):
    K, x = case.operator(torch.float64), case.x(torch.float64, channels=1)
    hessian = torch.autograd.functional.hessian(cubes(K), x).squeeze((1, 3))
    matrix = K.to_dense()
    assert_rounding(hessian, 6 * matrix.mT @ (K(x) * matrix), times=20)


@every_wrapped_kind
def test_func_grad(case):
    K, x = case.operator(torch.float64), case.x(torch.float64)
    assert_rounding(torch.func.grad(cubes(K))(x), K.T(3 * K(x).square()), times=4)


@every_wrapped_kind
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_func_vmap(case, axis):
    K = case.operator(torch.float64)
    x = normal(4, K.n, 3)
    y = torch.func.vmap(K, in_dims=axis, out_dims=axis)(x.movedim(0, axis))
    assert_rounding(y.movedim(axis, 0), K(x))


@every_wrapped_kind
def test_func_vmap_of_vmap(case):
    K = case.operator(torch.float64)
    x = normal(2, 4, K.n, 3)
    assert_rounding(torch.func.vmap(torch.func.vmap(K))(x), K(x))


@every_wrapped_kind
def test_func_vmap_of_grad(case):
    K = case.operator(torch.float64)
    x = normal(4, K.n, 3)
    assert_rounding(torch.func.vmap(torch.func.grad(cubes(K)))(x), K.T(3 * K(x).square()), times=4)


@every_wrapped_kind
def test_func_grad_of_vmap(case):
    # The tensor that the operator sees does not tell that an outer transform differentiates it.
    K = case.operator(torch.float64)
    x = normal(4, K.n, 3)
    assert_rounding(torch.func.grad(cubes(torch.func.vmap(K)))(x), K.T(3 * K(x).square()), times=4)


@every_wrapped_kind
def test_func_jacobian(case):
    K, x = case.operator(torch.float64), case.x(torch.float64, channels=1)
    assert_rounding(torch.func.jacrev(K)(x).squeeze((1, 3)), K.to_dense())


@every_wrapped_kind
def test_func_hessian(case):
    K, x = case.operator(torch.float64), case.x(torch.float64, channels=1)
    hessian = torch.func.jacrev(torch.func.jacrev(cubes(K)))(x).squeeze((1, 3))
    matrix = K.to_dense()
    assert_rounding(hessian, 6 * matrix.mT @ (K(x) * matrix), times=20)


@every_wrapped_kind
def test_forward_mode_is_an_error_not_a_wrong_answer(case):
    K, x = case.operator(torch.float64), case.x(torch.float64)
    if getattr(K, "engine", None) == "torch":
        return
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(K, (x,), (x,))


@every_kind
@pytest.mark.parametrize("form", ["scaled", "shifted"])
def test_gradient_in_the_vectors_is_not_lost(case, form):
    """It flows, or asking for it is an error: never a silent None."""
    K, x = case.operator(torch.float64), case.x(torch.float64)
    vector = torch.ones(K.n, dtype=torch.float64, requires_grad=True)
    try:
        changed = K.scaled(vector) if form == "scaled" else K.shifted(vector)
        changed(x).square().sum().backward()
    except (RuntimeError, ValueError):
        return
    assert vector.grad is not None
    y = K(x)
    expected = (
        2 * (y * y).sum(-1) + 2 * (x * K.T(y)).sum(-1) if form == "scaled" else 2 * ((y + x) * x).sum(-1)
    )
    assert_rounding(vector.grad, expected, times=20)


@pytest.mark.parametrize("channels", [1, 9, 21, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_in_weights_are_the_same_with_and_without_a_graph(channels, dtype):
    K = Lattice.build(normal(2, 50, 3, dtype=dtype))
    x, g = normal(2, 50, channels, dtype=dtype, seed=1), normal(2, 50, channels, dtype=dtype, seed=2)
    weight = K.splat.clone().requires_grad_()
    for learned in (
        replace(K, splat=weight, slice=weight),
        replace(K, slice=weight),
        replace(K, splat=weight),
    ):
        y = learned(x)
        (found,) = torch.autograd.grad(y, weight, g, retain_graph=True)
        (expected,) = torch.autograd.grad(y, weight, g, create_graph=True)
        assert_rounding(found, expected.detach())
