"""Sums of arrays times learned numbers: their derivatives are equal to autograd's."""

import pytest
import torch
from helpers import normal
from torch.autograd import gradcheck, gradgradcheck

from fwcrf.torch_ops.blends import affine, blend


def number(value):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("again", [gradcheck, gradgradcheck])
def test_a_blend(again):
    x, y = (normal(2, 3, 4, seed=k).double().requires_grad_() for k in (0, 1))
    assert again(blend, (x, y, number(0.3)))


@pytest.mark.parametrize("again", [gradcheck, gradgradcheck])
def test_an_affine_map(again):
    x, offset = normal(2, 3, 4).double().requires_grad_(), normal(3, 1, seed=1).double().requires_grad_()
    assert again(affine, (x, number(0.7), offset))


def test_sums_of_many_parts():
    """More entries than a part has, and a gradient that is not contiguous."""
    x, y = normal(300, 700), normal(300, 700, seed=1)
    g = normal(700, 300, seed=2).mT
    share = torch.tensor(0.25, requires_grad=True)
    (found,) = torch.autograd.grad(blend(x, y, share), share, g)
    assert torch.allclose(found.double(), (g.double() * (y - x).double()).sum(), rtol=1e-4)
    (found,) = torch.autograd.grad(affine(x, share, normal(300, 1)), share, g)
    assert torch.allclose(found.double(), (g.double() * x.double()).sum(), rtol=1e-4)
