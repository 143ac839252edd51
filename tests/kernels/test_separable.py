"""The separable filter is the exact kernel of the positions of a grid."""

import math

import pytest
import torch
from helpers import DTYPES, assert_rounding, covering, normal

from fwcrf import _core
from fwcrf.features import positions
from fwcrf.kernels import Exact, Separable
from fwcrf.torch_ops import separable_torch
from fwcrf.torch_ops.separable import separable_filter

GRIDS = {
    "1d": ((23,), 2.0),
    "2d": ((7, 9), 1.5),
    "3d": ((4, 3, 5), 1.2),
    "4d": ((2, 3, 2, 3), 0.9),
    "2d anisotropic": ((7, 9), (0.6, 3.0)),
    "3d anisotropic": ((4, 3, 5), (2.0, 0.5, 1.0)),
    "wide": ((5, 6), 40.0),
    "very wide": ((5, 6), 1e6),
    "narrow": ((6, 5), 0.1),
    "very narrow": ((6, 5), 1e-6),
    "wide and narrow": ((6, 5), (1e-3, 1e3)),
    "one pixel": ((1, 1), 3.0),
    "one pixel in 1d": ((1,), 3.0),
    "one row": ((1, 40), 2.0),
    "one column": ((40, 1), 2.0),
    "long and thin": ((2, 300), 5.0),
    "tall and thin": ((300, 2), 5.0),
}
every_grid = pytest.mark.parametrize(("shape", "xy"), GRIDS.values(), ids=GRIDS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def pair(shape, xy, dtype):
    like = torch.empty((), dtype=dtype)
    place = positions(shape, torch.empty((), dtype=torch.float64)) / torch.tensor(xy, dtype=torch.float64)
    return Separable.build(shape, xy, like), Exact(place)


def by_torch(K, x):
    """The same filter in plain torch operations, as on devices without a native kernel."""
    y = x
    for axis, taps in enumerate(K.taps):
        outer = len(x) * math.prod(K.shape[:axis])
        y = separable_torch.filter(y.reshape(outer, K.shape[axis], -1), taps)
    return y.view(x.shape)


@every_grid
@every_dtype
def test_equals_the_exact_kernel(shape, xy, dtype):
    K, exact = pair(shape, xy, dtype)
    assert_rounding(K.to_dense(), exact.to_dense().to(dtype))
    x = normal(K.n, 3)
    assert_rounding(K(x.to(dtype)), exact(x).to(dtype), times=4)


@every_grid
@every_dtype
def test_row_sums_equal_those_of_the_exact_kernel(shape, xy, dtype):
    K, exact = pair(shape, xy, dtype)
    assert_rounding(K.row_sums(), exact.row_sums().to(dtype), times=2)


@covering(length=[1, 2, 63, 64, 65, 130], channels=[1, 3, 4, 8, 21, 64, 65, 130], dtype=DTYPES)
def test_sizes_around_the_tiles(length, channels, dtype):
    K, _ = pair((length, 3), 2.0, dtype)
    x = normal(2, K.n, channels, dtype=dtype)
    assert_rounding(K(x), by_torch(K, x), times=4)


@every_grid
@every_dtype
def test_plain_torch_gives_the_same(shape, xy, dtype):
    K, _ = pair(shape, xy, dtype)
    x = normal(2, K.n, 3, dtype=dtype)
    assert_rounding(by_torch(K, x), K(x), times=4)


@every_dtype
def test_zero_outside_the_image(dtype):
    """A larger grid with zeros around gives the same inside."""
    small, _ = pair((5, 6), 1.7, dtype)
    large, _ = pair((25, 26), 1.7, dtype)
    x = normal(5, 6, 2, dtype=dtype)
    padded = torch.zeros(25, 26, 2, dtype=dtype)
    padded[10:15, 10:16] = x
    inside = large(padded.view(-1, 2)).view(25, 26, 2)[10:15, 10:16]
    assert_rounding(small(x.view(-1, 2)).view(5, 6, 2), inside)


@every_dtype
def test_rows_inside_a_large_image_sum_to_the_gaussian(dtype):
    s = 2.5
    K, _ = pair((61, 61), s, dtype)
    centre = K.row_sums().view(61, 61)[30, 30]
    assert_rounding(centre, torch.tensor(2 * math.pi * s * s, dtype=dtype), times=4)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_the_answer(threads, num_threads):
    K, _ = pair((150, 140), 4.0, torch.float32)
    x = normal(K.n, 21, dtype=torch.float32)
    num_threads(1)
    expected = K(x)
    num_threads(threads)
    torch.testing.assert_close(K(x), expected, rtol=0, atol=0)


def test_bandwidths_must_fit_the_grid():
    with pytest.raises(ValueError, match=r"xy=\(1\.0, 2\.0, 3\.0\) has 3 entries.*one number or 2"):
        Separable.build((4, 5), (1.0, 2.0, 3.0), torch.empty(()))


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 9, 3), (1, 40, 70), (3, 2, 130)], ids=str)
@pytest.mark.parametrize("count", [1, 2, 7, 50])
def test_slopes_of_taps_are_those_of_torch(shape, count):
    g, x = normal(*shape, seed=1), normal(*shape, seed=2)
    taps = normal(count, seed=3).requires_grad_()
    (expected,) = torch.autograd.grad(separable_torch.filter(x, taps), taps, g)
    found = torch.empty(count, dtype=torch.float64)
    for threads in (1, 2):
        _core.tap_slopes(g, x, found, threads)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_derivatives_in_taps_of_first_and_second_order():
    x, taps = normal(1, 12, 2, seed=1).requires_grad_(), normal(3, seed=2).requires_grad_()

    def f(x, taps):
        return separable_filter(x, (3, 4), [taps, taps[:2]])

    assert torch.autograd.gradcheck(f, (x, taps))
    assert torch.autograd.gradgradcheck(f, (x, taps))
