"""How close the lattice is to the exact kernel on photographs."""

from functools import cache

import pytest
import skimage.data
import torch
from helpers import (
    DTYPES,
    LATTICE_CLAIM,
    LATTICE_ERROR,
    LATTICE_SCALE_ERROR,
    assert_rounding,
    normal,
    uniform,
)

from fwcrf.features import bilateral, pixels
from fwcrf.kernels import Bilateral, Exact, Lattice
from fwcrf.kernels.calibration import row_factor

HEIGHT, WIDTH = 72, 96
PHOTOGRAPHS = ("astronaut", "coffee", "chelsea")
photographs = pytest.mark.parametrize("name", PHOTOGRAPHS)
# Half of the row sums are off by less, 1.15 times as measured.
ROW_SUM_ERROR = {3: 0.021, 5: 0.034}


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


@pytest.mark.parametrize("normalization", LATTICE_CLAIM)
def test_the_claimed_accuracy(normalization):
    """The mean error over the photographs rounds to the claimed one."""
    errors = []
    for name in PHOTOGRAPHS:
        y = Bilateral(normalization=normalization).operator(crop(name))(rows_that_sum_to_one(torch.float32))
        expected = exact(name, normalization)
        errors.append(float((y.double() - expected).norm() / expected.norm()))
    assert sum(errors) / len(errors) < LATTICE_CLAIM[normalization] + 0.0005


@pytest.mark.parametrize("d", ROW_SUM_ERROR)
def test_row_sums_are_nearly_exact_wherever_points_are_dense(d):
    """Groups of different size and width: the lattice loses another share in each."""
    groups = [
        (1 + k % 4) / 4 * normal(60 * (k + 1), d, seed=k) + 12 * normal(1, d, seed=99 - k) for k in range(12)
    ]
    features = torch.cat(groups)
    K = Lattice.build(features)
    fitted = K.scaled(row_factor(features, K)).row_sums() / Exact(features).row_sums()
    assert (fitted - 1).abs().median() < ROW_SUM_ERROR[d]


def test_calibrated_without_further_help():
    """``Lattice.build`` alone: no unit diagonal, no row sums divided out."""
    errors = []
    for name in PHOTOGRAPHS:
        values, shape = pixels(crop(name))
        K, expected = Lattice.build(bilateral(values, shape, 80, 13)), exact(name, "none")
        errors.append(float((K(rows_that_sum_to_one()) - expected).norm() / expected.norm()))
    # docs/accuracy.md: 4.2 % without the factor per row.
    assert sum(errors) / len(errors) < 1.3 * 0.042


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


@pytest.mark.filterwarnings("ignore:all .* points lie in lattice cells of their own")
def test_points_that_are_alone_are_not_scaled():
    """No pair of the sample is near enough to tell a ratio."""
    features = 100 * torch.arange(40, dtype=torch.float64)[:, None] * torch.ones(5, dtype=torch.float64)
    factor = row_factor(features, Lattice.build(features))
    torch.testing.assert_close(factor, torch.ones_like(factor))
