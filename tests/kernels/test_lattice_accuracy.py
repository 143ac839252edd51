"""How close the lattice is to the exact kernel on photographs."""

from functools import cache

import pytest
import skimage.data
import torch
from helpers import DTYPES, LATTICE_ERROR, LATTICE_SCALE_ERROR, assert_rounding, uniform

from fwcrf.features import bilateral, pixels
from fwcrf.kernels import Bilateral, Lattice

HEIGHT, WIDTH = 72, 96
photographs = pytest.mark.parametrize("name", ["astronaut", "coffee", "chelsea"])


def crop(name):
    image = getattr(skimage.data, name)()
    top, left = image.shape[0] // 3, image.shape[1] // 3
    return image[top : top + HEIGHT, left : left + WIDTH]


def rows_that_sum_to_one(dtype=torch.float64):
    x = uniform(HEIGHT * WIDTH, 5, dtype=dtype)
    return x / x.sum(-1, keepdim=True)


@cache
def exact(name, normalization):
    image = torch.from_numpy(crop(name).copy()).movedim(-1, 0).double()
    K = Bilateral(method="exact", normalization=normalization).operator(image)
    return K(rows_that_sum_to_one())


@photographs
@pytest.mark.parametrize("normalization", LATTICE_ERROR)
def test_close_to_the_exact_kernel(name, normalization):
    K = Bilateral(normalization=normalization).operator(crop(name))
    y, expected = K(rows_that_sum_to_one(torch.float32)).double(), exact(name, normalization)
    assert (y - expected).norm() < LATTICE_ERROR[normalization] * expected.norm()
    best_scale = (y * expected).sum() / y.square().sum()
    assert abs(best_scale - 1) < LATTICE_SCALE_ERROR


@photographs
def test_calibrated_without_further_help(name):
    """``Lattice.build`` alone: no unit diagonal, no row sums divided out."""
    values, shape = pixels(crop(name))
    y, expected = Lattice.build(bilateral(values, shape, 80, 13))(rows_that_sum_to_one()), exact(name, "none")
    assert (y - expected).norm() < LATTICE_ERROR["none"] * expected.norm()


@photographs
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_unit_diagonal_is_exactly_one(name, dtype):
    values, shape = pixels(crop(name))
    K = Lattice.build(bilateral(values.to(dtype), shape, 80, 13)).with_unit_diagonal()
    assert torch.equal(K.diagonal(), torch.ones(HEIGHT * WIDTH, dtype=dtype))
    x = torch.zeros(HEIGHT * WIDTH, 40, dtype=dtype)
    chosen = torch.arange(40) * 171
    x[chosen, torch.arange(40)] = 1
    assert_rounding(K(x)[chosen, torch.arange(40)], torch.ones(40, dtype=dtype))


@photographs
def test_entries_are_not_negative(name):
    """Row sums are divided by: they must be well away from zero."""
    K = Bilateral(normalization="none").operator(crop(name))
    assert K.row_sums().min() >= 1 - 1e-6  # a pixel may be alone
    x = torch.zeros(HEIGHT * WIDTH, 20)
    x[torch.arange(20) * 300, torch.arange(20)] = 1
    assert K(x).min() >= -1e-6
