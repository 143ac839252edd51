"""Log-probabilities in the layout of a network."""

import pytest
import torch
from helpers import DTYPES, uniform
from torch.testing import assert_close

from fwcrf.torch_ops.layout import log_probabilities

ROUNDING = {torch.float32: 3e-7, torch.float64: 4e-16}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("labels", [1, 2, 3, 8, 21, 70])
@pytest.mark.parametrize("grid", [(1,), (5, 7), (30, 41), (3, 4, 5)], ids=str)
def test_logarithms_are_right_to_rounding(grid, labels, dtype):
    n = torch.Size(grid).numel()
    x = torch.softmax(20 * uniform(2, n, labels, dtype=dtype), -1)
    expected = torch.log(0.999 * x.double() + 1e-3 / labels).mT.unflatten(-1, grid)
    found = log_probabilities(x, 1e-3, grid)
    assert found.is_contiguous() and found.dtype == dtype
    assert_close(found.double(), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_logarithms_of_every_size(dtype):
    x = torch.logspace(-30, 0, 4001, dtype=dtype).view(1, -1, 1)
    expected = torch.log((1 - 1e-30) * x.double() + 1e-30).mT
    assert_close(
        log_probabilities(x, 1e-30, (4001,)).double(), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype]
    )


def test_not_a_number_stays_one():
    x = uniform(1, 100, 9, dtype=torch.float32)
    x[0, 17, 3] = torch.nan
    assert torch.isnan(log_probabilities(x, 0.1, (100,))).nonzero().tolist() == [[0, 3, 17]]


@pytest.mark.parametrize("single", [False, True])
def test_derivatives_of_first_and_second_order(single):
    x = (0.1 + uniform(2, 12, 2)).requires_grad_()

    def f(x):
        return log_probabilities(x, 0.01, (3, 4), single=single)

    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


@pytest.mark.parametrize("labels", [2, 21])
def test_the_native_gradient_is_that_of_torch(labels):
    x = uniform(2, 99, labels, dtype=torch.float32).requires_grad_()
    g = uniform(2, labels, 9, 11, dtype=torch.float32, seed=1)
    (found,) = torch.autograd.grad(log_probabilities(x, 0.01, (9, 11)), x, g)
    (expected,) = torch.autograd.grad(torch.log(0.99 * x + 0.01 / labels).mT.unflatten(-1, (9, 11)), x, g)
    assert_close(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("labels", "grid"), [(1, (3,)), (3, (5, 7)), (21, (30, 41)), (70, (9, 20))])
def test_a_blend_is_taken_in_the_same_pass(labels, grid, dtype):
    """Also where squares of the transpose overlap, and arrays are smaller than one."""
    n = torch.Size(grid).numel()
    x, y = (uniform(2, n, labels, dtype=dtype, seed=k).requires_grad_() for k in (0, 1))
    share = torch.tensor(0.3, dtype=dtype, requires_grad=True)
    g = uniform(2, labels, *grid, dtype=dtype, seed=2)
    inputs = x, y, share
    found = log_probabilities(x, 0.01, grid, other=y, share=share)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expected = torch.log(0.99 * torch.lerp(*wide) + 0.01 / labels).mT.unflatten(-1, grid)
    assert_close(found.double(), expected, rtol=ROUNDING[dtype], atol=4 * ROUNDING[dtype])
    right = torch.autograd.grad(expected, wide, g.double())
    for one, other in zip(torch.autograd.grad(found, inputs, g), right, strict=True):
        assert one.dtype == dtype
        assert (one - other).norm() < 10 * ROUNDING[dtype] * other.norm()


@pytest.mark.parametrize("single", [False, True])
def test_a_blend_has_derivatives_of_first_and_second_order(single):
    x, y = (0.1 + uniform(2, 12, 2, seed=k).double() for k in (0, 1))
    share = torch.tensor(0.3, dtype=torch.float64)

    def f(x, y, share):
        return log_probabilities(x, 0.01, (3, 4), single=single, other=y, share=share)

    inputs = [t.requires_grad_() for t in (x, y, share)]
    assert torch.autograd.gradcheck(f, inputs)
    assert torch.autograd.gradgradcheck(f, inputs)
