"""argmin is the minimizer, for every kind of input it may get."""

import math

import numpy as np
import pytest
import scipy.optimize
import torch
from helpers import DTYPES, normal
from listed_regularizers import L, listed, objective, simplex_points
from torch.testing import assert_close

from fwcrf.regularizers import (
    BinaryEntropy,
    BlockQuadratic,
    Linear,
    Mixed,
    SquaredL2,
    SquaredLp,
    Tsallis,
    project_onto_simplex,
)

N = 7


def by_scipy(g, c, start):
    """The minimizer for one row, by sequential quadratic programming."""

    def value(x):
        return float(objective(g, c, torch.from_numpy(x)[None])[0])

    def grad(x):
        return (c + g.grad(torch.from_numpy(x)[None]))[0].numpy()

    x = start
    for _ in range(3):
        x = scipy.optimize.minimize(
            value,
            x,
            jac=grad,
            method="SLSQP",
            bounds=[(1e-13, 1.0)] * len(x),
            constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
            options={"ftol": 1e-16, "maxiter": 500},
        ).x
    return x


@listed(differentiable=True)
# SLSQP of scipy 1.11 warns of its own rounding errors.
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
def test_agrees_with_a_general_solver(case):
    g = case.g()
    c = normal(N, L)
    p = g.argmin(c)
    for row, answer in zip(c, p, strict=True):
        x = torch.from_numpy(by_scipy(g, row[None], np.full(L, 1 / L)))
        assert_close(answer, x, rtol=0, atol=1e-6)


@listed(values={"num_labels": [2, 4, 21], "scale": [0.3, 3.0]})
def test_beats_feasible_points_far_and_near(case, num_labels, scale):
    g = case.g(num_labels)
    c = scale * normal(N, num_labels)
    p = g.argmin(c)
    assert_close(p.sum(-1), torch.ones(N, dtype=p.dtype), rtol=0, atol=1e-14)
    least = objective(g, c, p)
    rounding = 1e-13 * (1 + scale)
    for seed in range(50):
        x = simplex_points(N, num_labels, seed=seed)
        for y in (x, p + 0.01 * (x - p), p + 1e-4 * (x - p)):
            assert (least <= objective(g, c, y) + rounding).all()


@listed()
def test_a_constant_changes_nothing(case):
    g, c = case.g(), normal(N, L)
    assert_close(g.argmin(c + 7.5), g.argmin(c), rtol=0, atol=1e-9)


@listed()
def test_forbidden_labels(case):
    g, c = case.g(), normal(N, L)
    c[:, 1] = math.inf
    c[0, 2:] = math.inf  # one label is left
    p = g.argmin(c)
    assert (p[:, 1] == 0).all()
    assert_close(p[0], torch.tensor([1.0, 0, 0, 0], dtype=p.dtype), rtol=0, atol=0)
    least = objective(g, c, p)
    for seed in range(50):
        x = simplex_points(N, L, seed=seed)
        x = torch.where(c == math.inf, 0.0, x)
        x = x / x.sum(-1, keepdim=True)
        assert (least <= objective(g, c, x) + 1e-12).all()


@listed(symmetric=True)
def test_a_forbidden_label_is_as_if_it_were_not_there(case):
    c = normal(N, L)
    c[:, 1] = math.inf
    allowed = [0, 2, 3]
    assert_close(case.g().argmin(c)[:, allowed], case.g(3).argmin(c[:, allowed]), rtol=0, atol=1e-12)


@listed(values={"dtype": DTYPES, "scale": [1e-6, 1e-2, 1.0, 1e2, 1e6]})
def test_any_scale(case, dtype, scale):
    g = case.g()
    c = (scale * normal(40, L)).to(dtype)
    c[0, 0], c[1, 1], c[2] = 1e30, -1e30, 0.0
    p = g.argmin(c)
    assert p.dtype == dtype
    assert torch.isfinite(p).all()
    assert (p >= 0).all()
    assert_close(p.sum(-1), torch.ones(40, dtype=dtype), rtol=0, atol=4 * torch.finfo(dtype).eps)
    assert p[0, 0] == 0
    assert p[1, 1] == 1
    # Rounding in c is amplified where the answer is not Lipschitz: powers of the exponent above 2.
    atol = 1e-3 if {getattr(g, "alpha", 0), getattr(g, "p", 0)} & {2.5, 3.0} else 1e-5
    assert_close(p.double(), g.argmin(c.double()), rtol=0, atol=atol)


@listed()
@pytest.mark.parametrize("shape", [(5, 1), (1, 4), (1, 1), (0, 4), (3, 1000)])
def test_any_size(case, shape):
    if shape[1] == 1000 and isinstance(case.g(), Linear | BlockQuadratic):
        shape = (3, 40)  # eigenvalues of large matrices take long
    g, c = case.g(shape[1]), normal(*shape)
    p = g.argmin(c)
    assert p.shape == shape
    assert_close(p.sum(-1), torch.ones(shape[0], dtype=p.dtype), rtol=0, atol=1e-13)
    if shape[1] == 1:
        assert (p == 1).all()
    if shape[0] == 3:
        least = objective(g, c, p)
        for seed in range(20):
            x = simplex_points(*shape, seed=seed)
            assert (least <= objective(g, c, p + 0.01 * (x - p)) + 1e-12).all()


@listed()
def test_batches_are_their_images(case):
    g, c = case.g(), normal(2, 3, N, L)
    p = g.argmin(c)
    for i in range(2):
        for j in range(3):
            assert_close(p[i, j], g.argmin(c[i, j]), rtol=0, atol=1e-12)
            assert_close(g.value(p)[i, j], g.value(p[i, j]))
    assert g.value(p).dtype == torch.float64


@listed(differentiable=True)
def test_weights_per_node_and_per_image(case):
    weights = case.per_node(N)
    c = normal(N, L)
    g = case.g(L, *weights)
    p = g.argmin(c)
    one = [case.g(L, *(w[i].item() for w in weights)) for i in range(N)]
    for i in range(N):
        assert_close(p[i : i + 1], one[i].argmin(c[i : i + 1]), rtol=0, atol=1e-8)
    assert_close(g.value(p), sum(one[i].value(p[i : i + 1]) for i in range(N)))
    assert_close(g.grad(p), torch.cat([one[i].grad(p[i : i + 1]) for i in range(N)]))
    assert_close(float(g.strong_convexity), min(float(h.strong_convexity) for h in one))

    batched = case.g(L, *(torch.stack([w, 2 * w]) for w in weights))
    q = batched.argmin(c.expand(2, N, L))
    assert_close(q[0], p, rtol=0, atol=1e-8)
    assert_close(batched.argmin(c), q, rtol=0, atol=1e-8)
    assert batched.value(q).shape == (2,)
    assert torch.as_tensor(batched.strong_convexity).shape in ((), (2,))


@listed(differentiable=True)
def test_a_weight_of_another_dtype_does_not_change_that_of_the_answer(case):
    weights = [torch.tensor(w, dtype=torch.float64) for w in case.weights]
    c = normal(N, L, dtype=torch.float32)
    p = case.g(L, *weights).argmin(c)
    assert p.dtype == torch.float32
    assert_close(p, case.g().argmin(c), rtol=0, atol=2e-6)
    assert case.g(L, *case.per_node(N)).argmin(c).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", range(-6, 7))
def test_mixed_at_any_ratio_of_its_weights(dtype, exponent):
    g = Mixed(l2=10.0**exponent, entropy=1.0)
    unit = 1 + 10.0**exponent
    c = (unit * normal(200, 21)).to(dtype)
    p = g.argmin(c)
    residual = c.double() + g.grad(p.double())
    residual = torch.where(p > 1e-30, residual, torch.nan)
    spread = residual.nan_to_num(-torch.inf).amax(-1) - residual.nan_to_num(torch.inf).amin(-1)
    assert (spread / unit).max() < 100 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    "g", [Tsallis(1.3), Tsallis(1.5), Mixed(1.0, 0.1), BinaryEntropy(), SquaredLp(1.4)], ids=str
)
def test_many_rows_are_solved_in_blocks(g):
    c = normal(20000, 21)
    p = g.argmin(c)
    rows = torch.tensor([0, 12482, 12483, 12484, 19999])
    assert_close(p[rows], g.argmin(c[rows]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "g",
    [Tsallis(1.3), Tsallis(1.5), Tsallis(2.5, 0.3), Mixed(1.0, 0.25), Mixed(0.2, 3.0), SquaredLp(1.4)],
    ids=str,
)
def test_a_row_with_one_label_in_reach_is_like_the_others(g, dtype):
    """Whatever the lead of the best label, the conditions hold, and the same row has the same answer."""
    lead = torch.logspace(-2, 2.5, 60, dtype=dtype)[:, None]
    c = torch.cat([0 * lead, lead, 1.5 * lead], -1)
    p = g.argmin(c)
    residual = c.double() + g.grad(p.double())
    reached = p > 1e-20
    spread = torch.where(reached, residual - residual[:, :1], 0.0)
    assert spread.abs().max() < 1e4 * torch.finfo(dtype).eps
    # Of an entropy, -inf: there p is 0 by underflow only.
    assert bool((reached | (residual >= residual[:, :1] - 1e-5) | residual.isinf()).all())
    assert_close(p, torch.cat([g.argmin(row[None]) for row in c]), rtol=1e-5, atol=1e-6)


def test_projection_beside_entries_that_dwarf_1():
    v = torch.tensor([[3e9, 3e9 - 1024, 0.0], [1e30, 0.0, -1e30], [-3e9, -3e9, -math.inf]])
    expected = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0.5, 0.5, 0]])
    assert torch.equal(project_onto_simplex(v), expected)
    assert torch.equal(SquaredL2().argmin(-v), expected)
