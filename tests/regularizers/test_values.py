"""value, grad, bounds, strong_convexity and curvature say the same about r."""

import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from listed_regularizers import CASES, L, listed, simplex_points
from torch.testing import assert_close

from fwcrf.regularizers import BinaryEntropy, Entropy, SquaredL2

N = 6


@listed()
def test_gradient_is_that_of_the_value(case):
    g = case.g()
    x = simplex_points(N, L, spread=1.0)
    d = normal(N, L, seed=5)
    step = 1e-5
    slope = (g.value(x + step * d) - g.value(x - step * d)) / (2 * step)
    assert_close(slope, (g.grad(x) * d).sum(), rtol=1e-7, atol=1e-8)


@listed(values={"num_labels": [1, 2, 4, 21], "per_node": [False, True]})
def test_bounds_hold_and_are_attained(case, num_labels, per_node):
    g = case.g(num_labels, *(case.per_node(N) if per_node else ()))
    low, high = g.bounds(num_labels)
    assert isinstance(low, float)
    assert isinstance(high, float)
    vertices = torch.eye(num_labels, dtype=torch.float64)
    special = [v.expand(N, num_labels) for v in vertices]
    special.append(g.argmin(torch.zeros(N, num_labels, dtype=torch.float64)))
    values = [g.per_node(x) for x in special]
    values += [g.per_node(simplex_points(N, num_labels, seed=s, spread=s)) for s in range(20)]
    values = torch.stack(values)
    rounding = 1e-12
    assert low - rounding <= values.min()
    assert values.max() <= high + rounding
    assert_close(values.min().item(), low, rtol=0, atol=1e-9)
    assert_close(values.max().item(), high, rtol=0, atol=1e-9)


@given(
    name=st.sampled_from(list(CASES)),
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.1, 1.0, 5.0, 30.0]),
)
def test_strong_convexity(name, seed, spread):
    g = CASES[name].g()
    x, y = simplex_points(1, L, seed=seed, spread=spread), simplex_points(1, L, seed=seed + 1, spread=spread)
    drop = g.value(x) / 2 + g.value(y) / 2 - g.value((x + y) / 2)
    assert drop >= float(g.strong_convexity) / 8 * (x - y).square().sum() - 1e-13


@pytest.mark.parametrize("g", [Entropy(0.7), SquaredL2(0.7), BinaryEntropy(0.7)], ids=str)
def test_strong_convexity_cannot_be_larger(g):
    x = torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)
    d = 1e-3 * torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64)
    second = g.value(x + d) + g.value(x - d) - 2 * g.value(x)
    assert_close(second.item(), g.strong_convexity * d.square().sum().item(), rtol=1e-4, atol=0)


@listed()
def test_curvature(case):
    g = case.g()
    d = normal(2, N, L, seed=5)
    if not g.quadratic:
        with pytest.raises(TypeError, match="not quadratic"):
            g.curvature(d)
        return
    x = simplex_points(2, N, L)
    second = g.value(x + d) + g.value(x - d) - 2 * g.value(x)
    assert_close(g.curvature(d), second, rtol=1e-10, atol=1e-10)
    assert g.curvature(d).shape == (2,)


@listed()
def test_values_of_float32_are_summed_in_float64(case):
    g = case.g()
    x = simplex_points(2, N, L).float()
    value = g.value(x)
    assert (value.dtype, value.shape) == (torch.float64, (2,))
    assert g.grad(x).dtype == torch.float32
    assert_close(value, g.value(x.double()), rtol=0, atol=1e-5)


@listed()
def test_vertices_have_finite_values(case):
    g = case.g()
    assert torch.isfinite(g.value(torch.eye(L, dtype=torch.float64)))
