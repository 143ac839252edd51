"""Energies and the first point, from logits in one pass."""

from __future__ import annotations

import pytest
import torch

from fwcrf import refine
from fwcrf.kernels import Exact
from fwcrf.pairwise import dense
from fwcrf.simplex import softmax
from fwcrf.solvers import minimize
from fwcrf.start import Begun, start


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("labels", [1, 2, 3, 7, 8, 9, 21, 65])
@pytest.mark.parametrize("n", [1, 7, 8, 63, 64, 65, 200, 1003])
def test_is_what_two_passes_make(n: int, labels: int, dtype: torch.dtype) -> None:
    logits = 20 * torch.randn(2, labels, n, dtype=dtype)
    found = start(logits)
    assert found is not None
    assert torch.equal(found.unary, -logits.mT)
    assert torch.allclose(found.x, torch.softmax(logits, -2).mT, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", [0, 70, 99])
def test_what_is_not_finite_is_left_to_others(bad: float, where: int) -> None:
    logits = torch.randn(3, 100)
    logits[1, where] = bad
    assert start(logits) is None


def test_what_torch_has_to_see_is_left_to_others() -> None:
    assert start(torch.randn(3, 10, requires_grad=True)) is None
    assert start(torch.randn(3, 10).half()) is None
    assert start(torch.empty(3, 0)) is None


def test_energies_start_there_once() -> None:
    found = start(torch.randn(3, 10))
    assert found is not None
    E = Begun.at(found, dense([Exact(torch.randn(10, 2))], num_labels=3))
    first = minimize(E, "mf", num_steps=0).probabilities
    assert first is found.x
    again = minimize(E, "mf", num_steps=0).probabilities
    assert again is not first
    assert torch.allclose(again, softmax(found.unary, -1.0))


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
