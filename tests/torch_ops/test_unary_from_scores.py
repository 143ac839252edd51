"""Energies of a network's scores, in one pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import DTYPES, covering, normal

from fwcrf import refine
from fwcrf.energy import Energy
from fwcrf.inputs.scores import read_scores
from fwcrf.kernels import Bilateral, Exact
from fwcrf.pairwise import dense, of_image
from fwcrf.solvers import minimize
from fwcrf.torch_ops.layout import unary_from_affine, unary_from_scores

every_size = covering(
    n=[1, 7, 8, 63, 64, 65, 200, 1003], labels=[1, 2, 3, 7, 8, 9, 21, 65], last=[False, True], dtype=DTYPES
)


def placed(scores: torch.Tensor, last: bool) -> torch.Tensor:
    return scores.mT.contiguous() if last else scores


@every_size
def test_logits(n: int, labels: int, last: bool, dtype: torch.dtype) -> None:
    logits = 20 * torch.randn(2, labels, n, dtype=dtype)
    found = unary_from_scores(placed(logits, last), labels_last=last)
    assert found is not None
    unary, extent = found
    assert torch.equal(unary, -logits.mT)
    sums = logits.sum(-2)
    assert extent.ordinary
    assert (extent.least, extent.most) == (logits.min(), logits.max())
    expected = torch.tensor([float(sums.min()), float(sums.max())])
    torch.testing.assert_close(torch.tensor(extent[3:]), expected, rtol=1e-4, atol=1e-3)


@every_size
def test_probabilities(n: int, labels: int, last: bool, dtype: torch.dtype) -> None:
    p = torch.softmax(20 * torch.randn(2, labels, n, dtype=dtype), -2)
    found = unary_from_scores(placed(p, last), labels_last=last, floor=1e-8)
    torch.testing.assert_close(found[0], -p.clamp(min=1e-8).log().mT, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.tensor(found[1][3:]), torch.ones(2), rtol=1e-5, atol=1e-5)
    assert found[1].least == p.min()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", [0, 70, 99])
@pytest.mark.parametrize("last", [False, True])
def test_what_is_not_finite_is_seen(bad: float, where: int, last: bool) -> None:
    logits = torch.randn(3, 100)
    logits[1, where] = bad
    found = unary_from_scores(placed(logits, last), labels_last=last)
    assert not found[1].ordinary


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("floor", [None, 1e-8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_portable_path_agrees(dtype: torch.dtype, floor: float | None, last: bool) -> None:
    """Half precision, and gradients of probabilities, are computed by torch."""
    p = torch.rand(3, 10).to(dtype).requires_grad_(dtype == torch.float64)
    found, extent = unary_from_scores(placed(p, last), labels_last=last, floor=floor)
    expected = -p.mT if floor is None else -p.mT.log()
    torch.testing.assert_close(found, expected)
    assert extent is not None and extent.ordinary and extent.most == p.max()


def test_empty_scores_have_no_extent() -> None:
    assert unary_from_scores(torch.empty(3, 0))[1] is None


@pytest.mark.parametrize("shape", [(1, 1), (3, 70), (2, 21, 100)], ids=str)
def test_derivatives_of_logits(shape: tuple[int, ...]) -> None:
    logits = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def unary(logits: torch.Tensor) -> torch.Tensor:
        return unary_from_scores(logits)[0]

    torch.testing.assert_close(unary(logits), -logits.mT)
    g = torch.randn_like(logits.mT)
    torch.testing.assert_close(torch.autograd.grad(unary(logits), logits, g)[0], -g.mT)
    if logits.numel() < 300:
        torch.autograd.gradgradcheck(unary, logits)


@pytest.mark.parametrize("form", ["logits", "probabilities"])
@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_ordinary_scores_take_one_pass(form: str, kind: str) -> None:
    logits = torch.randn(4, 6, 7)
    given = logits if form == "logits" else torch.softmax(logits, 0)
    expected = (-logits if form == "logits" else -torch.log_softmax(logits, 0)).flatten(1).mT
    value = given if kind == "torch" else given.permute(1, 2, 0).numpy()
    scores = read_scores(value, 2, from_logits=form == "logits")
    found = scores.unary(slice(None), scores.located.whole)
    assert found is not None
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(-scores.logits(slice(None), scores.located.whole), expected)


@pytest.mark.parametrize("what", ["nan", "zero", "negative", "sums"])
def test_scores_with_something_to_say_take_more(what: str) -> None:
    p = torch.softmax(torch.randn(4, 6, 7), 0)
    p[1, 2, 3] = {"nan": torch.nan, "zero": 0.0, "negative": -0.1, "sums": 0.7}[what]
    scores = read_scores(p, 2)
    assert scores.unary(slice(None), scores.located.whole) is None


def test_an_array_of_the_users_is_not_changed() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    p = np.random.default_rng(1).dirichlet(np.ones(4), (9, 11)).astype(np.float32)
    before = p.copy()
    refine(image, p, keep=np.eye(9, 11, dtype=bool))
    refine(image, p)
    assert np.array_equal(p, before)


def test_finite_energies_are_not_looked_at() -> None:
    P = dense([Exact(torch.randn(10, 2))], num_labels=3)
    spoilt = torch.full((10, 3), torch.nan)
    with pytest.raises(ValueError, match="NaN"):
        Energy(P, spoilt)
    assert Energy(P, spoilt, checked=True).unary is spoilt


@covering(solver=["mf", "efw", "l2fw", "fw", "pgd", "emd", "admm"], far=[0.0, 500.0], dtype=DTYPES)
def test_start_of_the_engine(solver: str, far: float, dtype: torch.dtype) -> None:
    """Without x0 the engine makes it; energies far from zero are no obstacle."""
    P = of_image([Bilateral(5.0, 0.3)], torch.rand(3, 12, 14, dtype=dtype), 11)
    E = Energy(P, 3 * torch.randn(168, 11, dtype=dtype) + far * torch.randn(168, 1, dtype=dtype))
    E.unary[5, 3] = torch.inf
    given = minimize(E, solver, torch.softmax(-E.unary, -1), num_steps=4).probabilities
    made = minimize(E, solver, num_steps=4).probabilities
    torch.testing.assert_close(made, given, rtol=0, atol=2e-4 if dtype == torch.float32 else 1e-10)
    assert made[5, 3] == 0


@pytest.mark.parametrize("labels", [2, 21])
def test_refining_a_view_or_with_a_mask_of_nothing(labels: int) -> None:
    image, logits = 255 * torch.rand(3, 20, 30), torch.randn(labels, 20, 30)
    given = dict(from_logits=True, return_probabilities=True)
    expected = refine(image, logits, **given)
    wide = torch.zeros(labels, 20, 60)
    wide[..., ::2] = logits
    for found in (
        refine(image, wide[..., ::2], **given),
        refine(image, logits, keep=torch.zeros(20, 30, dtype=torch.bool), **given),
    ):
        assert torch.equal(found[0], expected[0])
        assert torch.allclose(found[1], expected[1], atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("labels", "n"), [(1, 3), (2, 40), (21, 999), (64, 130)])
def test_scores_are_scaled_and_shifted_in_the_same_pass(labels, n, dtype):
    scores, offset = normal(2, labels, n).to(dtype).requires_grad_(), normal(labels, seed=1).to(dtype)
    scale, g = torch.tensor(0.7, dtype=dtype), normal(2, n, labels, seed=2).to(dtype)
    inputs = scores, scale.requires_grad_(), offset.requires_grad_()
    found = unary_from_affine(*inputs)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    expected = -(wide[1] * wide[0] + wide[2][:, None]).mT
    rounding = 4 * torch.finfo(dtype).eps
    assert (found - expected).abs().max() < rounding * expected.abs().max()
    right = torch.autograd.grad(expected, wide, g.double())
    for one, other in zip(torch.autograd.grad(found, inputs, g), right, strict=True):
        assert one.dtype == dtype
        assert (one - other).norm() < 10 * rounding * other.norm()


def test_scaled_scores_have_second_derivatives():
    inputs = [normal(2, 3, 5).double(), torch.tensor(0.7).double(), normal(3, seed=1).double()]
    inputs = [t.requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(unary_from_affine, inputs)
    assert torch.autograd.gradgradcheck(unary_from_affine, inputs)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_scores_that_are_not_finite_are_not_scaled_there(value):
    scores = normal(3, 40)
    scores[1, 17] = value
    assert unary_from_affine(scores, 2.0, torch.zeros(3)) is None
    assert unary_from_affine(normal(65, 4), 2.0, torch.zeros(65)) is None
