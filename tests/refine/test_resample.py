"""Resampling against torch, and in windows."""

import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from fwcrf.inputs.resample import needed, resample


def whole(size):
    return tuple(slice(0, n) for n in size)


@pytest.mark.parametrize(
    ("source", "grid", "mode"),
    [((7,), (20,), "linear"), ((5, 6), (9, 31), "bilinear"), ((3, 4, 5), (6, 9, 7), "trilinear")],
)
def test_more_pixels_are_linear_between_centres(source, grid, mode):
    x = normal(2, *source, 3)
    expected = functional.interpolate(x.movedim(-1, 1), size=grid, mode=mode).movedim(1, -1)
    torch.testing.assert_close(resample(x, whole(grid), grid, source), expected)


@pytest.mark.parametrize(("source", "grid"), [((24,), (6,)), ((12, 15), (4, 3)), ((4, 6, 8), (2, 2, 2))])
def test_fewer_pixels_are_means(source, grid):
    x = normal(2, *source, 3)
    expected = functional.interpolate(x.movedim(-1, 1), size=grid, mode="area").movedim(1, -1)
    torch.testing.assert_close(resample(x, whole(grid), grid, source), expected)


def test_means_count_pixels_by_the_part_that_is_covered():
    x = torch.tensor([3.0, 6.0, 9.0]).view(3, 1)
    torch.testing.assert_close(resample(x, whole((2,)), (2,), (3,)).flatten(), torch.tensor([4.0, 8.0]))


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_a_window_is_a_part_of_the_whole(source, grid, data):
    start = data.draw(st.integers(0, grid - 1))
    window = (slice(start, data.draw(st.integers(start + 1, grid))), slice(0, 4))
    x = normal(source, 4, 2, seed=source)
    size = (grid, 4)
    expected = resample(x, whole(size), size, (source, 4))[window]
    part = needed(window, size, (source, 4))
    torch.testing.assert_close(resample(x[part], window, size, (source, 4)), expected)
    assert expected.min() >= x.min() - 1e-12 and expected.max() <= x.max() + 1e-12


def test_the_same_size_is_the_same():
    x = normal(5, 6, 3)
    assert torch.equal(resample(x, whole((5, 6)), (5, 6), (5, 6)), x)
