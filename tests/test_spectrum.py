import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from fwcrf.kernels import Exact
from fwcrf.pairwise import dense
from fwcrf.spectrum import eigenvector, extreme_eigenvalues, largest_eigenvalue


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
def test_equals_dense_eigenvalues(batch):
    f = torch.randn(*batch, 20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P = dense([Exact(f)], 3)
    found = extreme_eigenvalues(P, torch.zeros(*batch, 20, 3, dtype=torch.float64), tol=1e-9)
    expected = torch.linalg.eigvalsh(P.to_dense())
    assert_close(found.lowest, expected[..., 0], rtol=1e-7, atol=1e-9)
    assert_close(found.highest, expected[..., -1], rtol=1e-7, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12))
def test_never_leaves_the_spectrum(eigenvalues):
    d = torch.tensor(eigenvalues, dtype=torch.float64).unsqueeze(-1)
    found = extreme_eigenvalues(lambda x: d * x, d, tol=1e-6)
    scale = d.abs().max() + 1e-12
    assert found.lowest >= d.min() - 1e-9 * scale
    assert found.highest <= d.max() + 1e-9 * scale
    assert found.lowest - found.lowest_error <= d.min() + 1e-5 * scale
    assert found.highest + found.highest_error >= d.max() - 1e-5 * scale


def test_exhausted_images_do_not_disturb_the_batch():
    """One image is a multiple of the identity: its Krylov space ends after one step."""
    d = torch.stack([torch.full((6, 1), 2.0), torch.linspace(-1, 4, 6).unsqueeze(-1)]).double()
    found = extreme_eigenvalues(lambda x: d * x, d, tol=1e-9)
    assert_close(found.lowest, torch.tensor([2.0, -1.0], dtype=torch.float64))
    assert_close(found.highest, torch.tensor([2.0, 4.0], dtype=torch.float64))


def test_an_image_has_the_same_answer_alone_and_in_a_batch():
    P = torch.randn(3, 12, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P = P + P.mT
    together = extreme_eigenvalues(lambda x: P @ x, torch.zeros(3, 12, 1, dtype=torch.float64))
    for i in range(3):
        alone = extreme_eigenvalues(lambda x, i=i: P[i] @ x, torch.zeros(12, 1, dtype=torch.float64))
        assert_close(together.highest[i], alone.highest, rtol=1e-9, atol=0)


def test_same_seed_same_answer():
    P = dense([Exact(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)))], 2)
    first, second = (extreme_eigenvalues(P, torch.zeros(30, 2), max_steps=5) for _ in range(2))
    assert torch.equal(first.highest, second.highest)


def test_empty_is_refused():
    with pytest.raises(ValueError, match="none of them 0"):
        extreme_eigenvalues(lambda x: x, torch.zeros(0, 2))


@pytest.mark.parametrize("batch", [(), (3,)], ids=["single", "batch"])
def test_the_eigenvector_belongs_to_the_largest_eigenvalue(batch):
    f = torch.randn(*batch, 20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    P, like = dense([Exact(f)], 3, compat=-1.0), torch.zeros(*batch, 20, 3, dtype=torch.float64)
    top = largest_eigenvalue(P, like, tol=1e-10)
    v = eigenvector(P, like, top.coefficients)
    assert top.converged.all()
    assert_close(top.value, torch.linalg.eigvalsh(P.to_dense())[..., -1], rtol=1e-9, atol=0)
    assert_close(v.square().sum((-2, -1)), torch.ones(batch, dtype=torch.float64))
    assert_close(P(v), top.value[..., None, None] * v, rtol=0, atol=1e-8)


def test_an_iteration_that_is_cut_short_says_so():
    d = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
    top = largest_eigenvalue(lambda x: d * x, d, tol=1e-9, max_steps=5)
    assert not top.converged and top.value < 1 and top.error > 0
