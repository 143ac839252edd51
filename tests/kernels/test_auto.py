"""The method "auto": exact for few points, a lattice for images and many points."""

import warnings

import pytest
import torch

import fwcrf
from fwcrf.kernels import Bilateral, Exact, Gaussian, Lattice, Spatial
from fwcrf.kernels.calibration import signed_error
from fwcrf.kernels.kernel import gaussian, most_exact
from fwcrf.kernels.operator import Rescaled


def scattered(n, d, seed=0):
    return torch.rand(n, d, generator=torch.Generator().manual_seed(seed)) * 4


def is_exact(K):
    return isinstance(K, Exact) or (isinstance(K, Rescaled) and isinstance(K.inner, Exact))


@pytest.mark.parametrize("d", [1, 3, 5, 6, 14])
def test_few_points_are_exact_and_many_are_a_lattice(d):
    most = {1: 160, 3: 320, 5: 1024, 6: 1024, 14: 1200}[d]
    assert most_exact(d) == most
    assert is_exact(Gaussian().operator(scattered(most, d)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert isinstance(Gaussian().operator(scattered(most + 1, d)), Lattice)


def test_a_method_that_is_named_is_taken():
    assert isinstance(Gaussian(method="lattice").operator(scattered(50, 2)), Lattice)
    assert is_exact(Gaussian(method="exact").operator(scattered(500, 2)))


@pytest.mark.parametrize("normalization", ["none", "symmetric"])
def test_no_entry_of_few_scattered_points_is_above_one(normalization):
    K = Gaussian(normalization=normalization).operator(scattered(300, 8)).to_dense()
    assert float(K.max()) <= 1 + 1e-5


def test_an_image_is_always_a_lattice():
    image = torch.rand(3, 4, 5) * 100
    found, named = (Bilateral(10, 60, method=m).operator(image) for m in ("auto", "lattice"))
    assert isinstance(found, Lattice) and torch.equal(found.to_dense(), named.to_dense())


def test_a_lattice_over_points_that_is_far_off_is_reported():
    message = r"lattice over 300 points with 8 features is off by \d+ %.*\d+ %.*method='exact'"
    with pytest.warns(UserWarning, match=message):
        Gaussian(method="lattice").operator(scattered(300, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Gaussian(method="lattice").operator(scattered(2000, 3))


def test_a_lattice_that_is_right_in_row_sums_only_is_reported():
    with pytest.warns(UserWarning, match=r"off by 11 % in a sample of row sums, and by 2[67] % for"):
        Gaussian().operator(1.5 * scattered(3000, 5))


@pytest.mark.parametrize("normalization", ["none", "symmetric", "before", "after"])
@pytest.mark.parametrize(("n", "d"), [(1500, 3), (1000, 6), (300, 8)])
def test_the_error_for_random_signs_is_that_of_the_whole_matrix(n, d, normalization):
    features = scattered(n, d)
    K, exact = (gaussian(features, m, normalization) for m in ("lattice", "exact"))
    off = [one.without_self_edges().to_dense() for one in (K, exact)]
    expected = float((off[0] - off[1]).norm() / off[1].norm())
    assert signed_error(features, K, normalization) == pytest.approx(expected, rel=0.25)


def test_points_without_settings_are_exact_if_few():
    place, p = scattered(60, 3).numpy(), torch.softmax(scattered(60, 3, seed=1), -1).numpy()
    found, exact = (
        fwcrf.refine_points(place, None, p, kernels=[kernel], return_probabilities=True)[1]
        for kernel in (Spatial(1.0), Spatial(1.0, method="exact"))
    )
    assert (found == exact).all()


def test_a_kept_matrix_gives_the_sums_of_the_filter():
    x = torch.rand(2, 70, 4)
    K = Exact(scattered(70, 3))
    torch.testing.assert_close(K(x), K(x.clone().requires_grad_()).detach())
    x[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="x has 1 values that are NaN"):
        K(x)
