"""Regularizers that equal one another, known formulas, and other libraries."""

import numpy as np
import pytest
import scipy.special
import torch
from helpers import normal
from listed_regularizers import FORMS
from torch.testing import assert_close

from fwcrf.regularizers import (
    BinaryEntropy,
    BlockQuadratic,
    Entropy,
    Linear,
    Mixed,
    Simplex,
    SquaredL2,
    SquaredLp,
    Tsallis,
    block_quadratic,
)
from fwcrf.regularizers.dual import increasing_root, max_steps
from fwcrf.regularizers.mixed import wright_omega

DTYPES = [torch.float32, torch.float64]
C = normal(100, 9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tsallis_ends_are_entropy_and_squared_l2_to_the_last_bit(dtype):
    c = C.to(dtype)
    for weight in (0.3, torch.tensor(0.3), normal(100, 1).exp()):
        assert torch.equal(Tsallis(1, weight).argmin(c), Entropy(weight).argmin(c))
        assert torch.equal(Tsallis(2, weight).argmin(c), SquaredL2(weight).argmin(c))
        assert torch.equal(SquaredLp(2, weight).argmin(c), SquaredL2(weight).argmin(c))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_tsallis_tends_to_its_ends(dtype, gap):
    c = C.to(dtype)
    atol = 3 * gap + 20 * torch.finfo(dtype).eps
    assert_close(Tsallis(1 + gap).argmin(c), Entropy().argmin(c), rtol=0, atol=atol)
    assert_close(Tsallis(2 - gap).argmin(c), SquaredL2().argmin(c), rtol=0, atol=atol)
    assert_close(Tsallis(2 + gap).argmin(c), SquaredL2().argmin(c), rtol=0, atol=atol)
    x = Entropy().argmin(c)
    assert_close(Tsallis(1 + gap).value(x), Entropy().value(x), rtol=5 * gap + 1e-6, atol=0)


def bisection(c, alpha, weight):
    """p by halving an interval of u, with nothing else in common with the library."""
    v = -(alpha - 1) / weight * c
    low, high = v.amax(-1, keepdim=True) - 1, v.amax(-1, keepdim=True)
    for _ in range(100):
        middle = (low + high) / 2
        above = (v - middle).clamp(min=0).pow(1 / (alpha - 1)).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (v - low).clamp(min=0).pow(1 / (alpha - 1))


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.9])
@pytest.mark.parametrize("weight", [0.05, 1.0, 20.0])
def test_tsallis_is_what_bisection_finds(alpha, weight):
    assert_close(Tsallis(alpha, weight).argmin(C), bisection(C, alpha, weight), rtol=0, atol=1e-13)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_tsallis_is_entmax(alpha):
    entmax = pytest.importorskip("entmax", reason="make .venv/.peers installs it")
    expected = entmax.entmax_bisect(-C, alpha, n_iter=80)
    assert_close(Tsallis(alpha).argmin(C), expected, rtol=0, atol=1e-12)
    c = C.clone().requires_grad_()
    other = C.clone().requires_grad_()
    direction = normal(100, 9, seed=1)
    (Tsallis(alpha).argmin(c) * direction).sum().backward()
    (entmax.entmax_bisect(-other, alpha, n_iter=80) * direction).sum().backward()
    assert_close(c.grad, other.grad, rtol=0, atol=1e-10)


def test_mixed_tends_to_its_parts():
    assert_close(Mixed(1e-9, 0.7).argmin(C), Entropy(0.7).argmin(C), rtol=0, atol=1e-8)
    assert_close(Mixed(0.7, 1e-9).argmin(C), SquaredL2(0.7).argmin(C), rtol=0, atol=1e-7)


def test_binary_entropy_of_two_labels_is_twice_the_entropy():
    c = C[:, :2]
    assert_close(BinaryEntropy(0.3).argmin(c), Entropy(0.6).argmin(c), rtol=1e-12, atol=0)


def test_binary_entropy_is_a_sigmoid_of_c():
    p = BinaryEntropy(0.3).argmin(C)
    tau = C + 0.3 * torch.logit(p)
    assert_close(tau, tau[:, :1].expand_as(tau), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_wright_omega(dtype):
    x = torch.cat([torch.linspace(-75, 75, 5001), torch.logspace(1, 8, 500)]).to(dtype)
    expected = torch.from_numpy(scipy.special.wrightomega(x.double().numpy())).to(dtype)
    # Where omega is exp x, an error in the last bit of x is one of |x| bits.
    assert_close(wright_omega(x), expected, rtol=80 * torch.finfo(dtype).eps, atol=0)


# --- block quadratic -----------------------------------------------------------------------------


def potts_like(num_labels):
    v = normal(num_labels, seed=2)
    return 0.8 * torch.eye(num_labels, dtype=torch.float64) + v[:, None] + v[None, :]


@pytest.mark.parametrize("entropy", [0.0, 0.3])
@pytest.mark.parametrize("weight", [None, 0.6, normal(100, 1).exp()], ids=["1", "0.6", "per node"])
@pytest.mark.parametrize("linear", [None, normal(1, 9, seed=4)], ids=["", "linear"])
def test_potts_like_matrices_have_closed_forms(entropy, weight, linear):
    fast = block_quadratic(potts_like(9), weight, linear, entropy)
    slow = BlockQuadratic(potts_like(9), weight, linear, entropy)
    assert isinstance(fast, Linear)
    assert isinstance(fast.g, Mixed if entropy else SquaredL2)
    p = fast.argmin(C)
    assert_close(p, slow.argmin(C), rtol=0, atol=1e-7)
    assert_close(fast.value(p), slow.value(p))
    spread = fast.grad(p) - slow.grad(p)
    assert_close(spread, spread[:, :1].expand_as(spread), rtol=0, atol=1e-12)
    assert_close(float(fast.strong_convexity), float(slow.strong_convexity))
    np.testing.assert_allclose(fast.bounds(9), slow.bounds(9), rtol=1e-9)


def test_a_form_that_is_flat_on_the_simplex_leaves_its_linear_part():
    v = normal(9, seed=2)
    flat = v[:, None] + v[None, :]
    assert isinstance(block_quadratic(flat).g, Simplex)
    assert torch.equal(block_quadratic(flat).argmin(C), Simplex().argmin(C + v))
    assert_close(block_quadratic(flat, entropy=0.5).argmin(C), Entropy(0.5).argmin(C + v))


def test_any_other_matrix_is_solved_numerically():
    assert isinstance(block_quadratic(FORMS[9]), BlockQuadratic)


@pytest.mark.parametrize("entropy", [0.0, 0.05])
def test_nodes_without_weight(entropy):
    weight = torch.ones(100, 1, dtype=torch.float64)
    weight[:10] = 0
    p = block_quadratic(FORMS[9], weight, entropy=entropy).argmin(C)
    free = Entropy(entropy) if entropy else Simplex()
    assert_close(p[:10], free.argmin(C[:10]), rtol=0, atol=1e-9)
    assert_close(p[10:], BlockQuadratic(FORMS[9], entropy=entropy).argmin(C[10:]), rtol=0, atol=1e-8)
    q = block_quadratic(potts_like(9), weight, entropy=entropy).argmin(C)
    assert_close(q[:10], free.argmin(C[:10]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entropy", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("condition", [1e1, 1e4])
def test_block_quadratic_reaches_its_tolerance(dtype, entropy, condition):
    """The duality gap, measured here in float64, is below what the docstring says."""
    num_labels = 12
    basis = torch.linalg.qr(normal(num_labels, num_labels)).Q
    values = torch.logspace(0, -np.log10(condition), num_labels, dtype=torch.float64)
    q = basis @ torch.diag(values) @ basis.mT
    c = 0.3 * normal(200, num_labels, seed=3)
    g = BlockQuadratic(q, entropy=entropy)
    p = g.argmin(c.to(dtype)).double()
    p = p / p.sum(-1, keepdim=True)
    slope = c + p @ q
    part = Entropy(entropy) if entropy else Simplex()
    best = part.argmin(slope)
    gap = (slope * (p - best)).sum(-1) + part.per_node(p) - part.per_node(best)
    assert gap.max() < (1e-6 if dtype == torch.float64 else 1.1e-5) * (1 + entropy)
    assert gap.min() > -1e-12


def test_block_quadratic_is_differentiable_in_its_matrix():
    matrix, c = FORMS[4].clone().requires_grad_(), normal(3, 4).requires_grad_()
    linear = normal(1, 4, seed=2).requires_grad_()

    def answer(c, matrix, linear, entropy):
        return BlockQuadratic((matrix + matrix.mT) / 2, 1.3, linear, entropy).argmin(c)

    for entropy in (0.0, 0.2):
        assert torch.autograd.gradcheck(lambda *a, v=entropy: answer(*a, v), (c, matrix, linear))


# --- the root finder -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_roots_are_found_within_the_bound_even_if_newton_is_of_no_use(dtype):
    """Steps, kinks and poles: only the bracket can be trusted."""
    roots = torch.rand(1000, 1, generator=torch.Generator().manual_seed(0)).to(dtype)
    calls = 0

    def evaluate(t):
        nonlocal calls
        calls += 1
        value = (t - roots).sign() * (t - roots).abs().sqrt()
        return value, t - 2 * (t - roots)  # Newton on sqrt|t|: forever to the other side

    tolerance = 4 * torch.finfo(dtype).eps
    low, high = torch.zeros_like(roots), torch.ones_like(roots)
    found = increasing_root(evaluate, low, high, tolerance=tolerance)
    assert_close(found, roots, rtol=4 * tolerance, atol=torch.finfo(dtype).eps)
    assert calls < max_steps(dtype)
