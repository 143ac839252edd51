"""torch.compile without graph breaks gives what eager gives, forward and backward."""

import shutil

import pytest
import torch
from helpers import Case, assert_rounding

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*Function.*should not be instantiated:DeprecationWarning"  # torch.compile does so itself
)
# One of every kind of operator; a model holds the plain operator, and what wraps or changes it.
CASES = [
    *(Case(base, "model") for base in ("exact", "separable-2d", "lattice-5d-native")),
    Case("lattice-5d-torch", "plain"),
]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def step(K):
    return lambda x: K(x.softmax(-1)) * 2


def check_backward(case, dtype, backend):
    eager = step(case.operator(dtype))
    compiled = torch.compile(eager, fullgraph=True, backend=backend)
    x, g = case.x(dtype).requires_grad_(), case.x(dtype, seed=5)
    expected, actual = eager(x), compiled(x)
    assert_rounding(actual, expected)
    (expected_gradient,) = torch.autograd.grad(expected, x, g)
    (gradient,) = torch.autograd.grad(actual, x, g)
    assert_rounding(gradient, expected_gradient, times=4)


@pytest.mark.parametrize("case", [Case("exact", "model"), Case("lattice-forward-native", "plain")], ids=str)
def test_forward_alone(case):
    eager, x = step(case.operator(torch.float64)), case.x(torch.float64)
    compiled = torch.compile(eager, fullgraph=True, backend="aot_eager")
    assert_rounding(compiled(x), eager(x))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_backward(case):
    check_backward(case, torch.float64, "aot_eager")


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler")
def test_backward_with_inductor():
    check_backward(Case("lattice-5d-native", "model"), torch.float32, "inductor")
