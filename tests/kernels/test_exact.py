"""The exact kernel: its entries, its derivatives in the features, its memory."""

import sys

import numpy as np
import pytest
import torch
from helpers import DTYPES, assert_rounding, in_process, normal, points

from fwcrf.kernels import Exact
from fwcrf.torch_ops import exact as ops


def dense(rows, columns):
    """The definition, in numpy."""
    difference = rows.double().numpy()[:, None] - columns.double().numpy()[None]
    return torch.from_numpy(np.exp(-0.5 * (difference**2).sum(-1)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("d", [1, 2, 5, 20])
def test_entries(d, dtype):
    features = points(23, d, dtype=dtype)
    assert_rounding(Exact(features).to_dense(), dense(features, features).to(dtype))


def test_near_points_keep_their_digits():
    """Distances as a matrix product would lose half of them."""
    features = 1000 + 1e-3 * normal(9, 3)
    assert_rounding(1 - Exact(features).to_dense(), 1 - dense(features, features), scale=1.0)


@pytest.mark.parametrize("shape", [(6, 2), (2, 4, 3)], ids=str)
def test_gradient_in_the_features(shape):
    features, x = points(*shape), normal(*shape[:-1], 2)
    inputs = (features.requires_grad_(), x.requires_grad_())
    apply = lambda features, x: Exact(features)(x)  # noqa: E731
    assert torch.autograd.gradcheck(apply, inputs)
    assert torch.autograd.gradgradcheck(apply, inputs)


def test_gradient_in_shared_features():
    """One set of features under a batch of inputs, and the other way round."""
    features, x = points(5, 2).requires_grad_(), normal(3, 5, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda f, x: Exact(f)(x), (features, x))
    features, x = points(3, 5, 2).requires_grad_(), normal(5, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda f, x: Exact(f)(x), (features, x))


@pytest.mark.parametrize("form", ["normalized", "unit-diagonal", "no-self-edges"])
def test_gradient_in_the_features_through_forms(form):
    def apply(features):
        K = Exact(features)
        changed = {
            "normalized": lambda: K.normalized("symmetric"),
            "unit-diagonal": K.with_unit_diagonal,
            "no-self-edges": K.without_self_edges,
        }
        return changed[form]()(x)

    features, x = points(6, 2).requires_grad_(), normal(6, 2)
    assert torch.autograd.gradcheck(apply, (features,))


def test_functional_derivatives_in_the_features():
    features, x = points(5, 2), normal(5, 1)
    loss = lambda features: Exact(features)(x).square().sum()  # noqa: E731
    by_hand = lambda f: ((-0.5 * (f[:, None] - f).square().sum(-1)).exp() @ x).square().sum()  # noqa: E731
    assert_rounding(torch.func.grad(loss)(features), torch.func.grad(by_hand)(features), times=20)
    reverse = torch.func.jacrev(torch.func.jacrev(loss))(features)
    assert_rounding(reverse, torch.func.hessian(by_hand)(features), times=20)
    many = points(4, 5, 2, seed=3)
    assert_rounding(
        torch.func.vmap(torch.func.grad(by_hand))(many),
        torch.stack([torch.func.grad(loss)(f) for f in many]),
        times=20,
    )


@pytest.mark.parametrize("rows", [1, 3, 10, 11, 1000])
def test_chunks_of_rows(monkeypatch, rows):
    """The answer does not depend on how many rows fit into memory."""
    features, x = points(2, 11, 3), normal(2, 11, 2)
    whole = Exact(features)(x)
    monkeypatch.setattr(ops, "_CHUNK_BYTES", rows * 11 * 8)
    assert_rounding(Exact(features)(x), whole)


def megabytes():
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def peak_of_exact(n):
    Exact(points(256, 2, dtype=torch.float32))(torch.ones(256, 1))  # whatever is loaded at first use
    K = Exact(normal(n, 2, dtype=torch.float32))
    before = megabytes()
    K(torch.ones(n, 1))
    return megabytes() - before


@pytest.mark.posix
def test_memory_is_bounded():
    n = 9_000
    matrix = n * n * 4 / 2**20
    assert matrix > 300
    assert in_process(peak_of_exact, n) < 160  # a few chunks of 32 MB
