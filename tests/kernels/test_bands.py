"""Bands of the kernel along an axis: equal to dense matrices, with time and memory linear in the axis."""

import tracemalloc

import numpy as np
import pytest
import torch
from helpers import DTYPES, covering, normal

from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model
from fwcrf.kernels import Separable, Spatial, bands
from fwcrf.pairwise import dense


def axis(size, sigma, dtype=torch.float32, mode="symmetric"):
    K = Separable.build((size,), sigma, torch.empty((), dtype=dtype)).normalized(mode)
    ones = (torch.ones(size, dtype=dtype),)
    return K.taps[0], (K.left or ones)[0], (K.right or ones)[0]


def matrix(band, columns):
    """The banded matrix with its zeros."""
    rows, width = band.weight.shape
    full = np.zeros((rows, columns), band.weight.dtype)
    np.put_along_axis(full, band.first[:, None].astype(int) + np.arange(width), band.weight, -1)
    return full


def dense_factors(size, taps, left, right):
    """The factors as matrices, entry by entry."""
    sigma = bands._sigma(taps)
    spacing = int(sigma / 1.5 + 1e-3) if taps.dtype == torch.float32 and sigma < size else 1
    i = torch.arange(size)
    if spacing < 2:
        distance = (i[:, None] - i).abs()
        K = torch.where(distance < len(taps), taps[distance.clamp(max=len(taps) - 1)], 0)
        return left[:, None] * K * right, None, torch.eye(size, dtype=taps.dtype)
    points = bands._points(torch.arange(-3, size // spacing + 5), spacing)
    w = bands._window(i[:, None] - points, spacing)
    w = w[:, (w != 0).any(0)]
    apart = (torch.arange(w.shape[1])[:, None] - torch.arange(w.shape[1])).abs()
    g = bands._coarse(sigma, spacing)
    G = torch.where(apart < len(g), g[apart.clamp(max=len(g) - 1)], 0)
    down, up = (right[:, None].double() * w).mT, left[:, None].double() * w
    return down.to(taps), G.to(taps), up.to(taps)


@covering(
    size=[1, 2, 5, 6, 17, 64, 375],
    sigma=[0.05, 0.5, 1.0, 2.9, 3.0, 4.5, 7.7, 12.0, 60.0, 1e5],
    dtype=DTYPES,
    mode=["none", "symmetric", "before"],
)
def test_bands_are_the_dense_factors_bit_for_bit(size, sigma, dtype, mode):
    given = axis(size, sigma, dtype, mode)
    found, expected = bands.factors(size, *given), dense_factors(size, *given)
    between = len(found.down.first)
    for band, M, columns in zip(found, expected, (size, between, between), strict=True):
        assert (band is None) == (M is None)
        if band is not None:
            assert np.array_equal(matrix(band, columns), M.numpy())
            assert (np.diff(band.first) >= 0).all()
            # As narrow as the entries allow: a wider band would take longer at every step.
            there = M.numpy() != 0
            reach = columns - there[:, ::-1].argmax(-1) - there.argmax(-1)
            assert band.weight.shape[1] == reach.max()


@pytest.mark.parametrize("sigma", [1.0, 3.0, 20.0])
def test_memory_grows_with_the_axis_and_not_with_its_square(sigma):
    def peak(size):
        given = axis(size, sigma)
        bands.factors(size, *given)  # the coarse taps are then known
        bands._made.cache_clear()
        tracemalloc.start()
        try:
            bands.factors(size, *given)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(16000) < 5 * peak(4000) < 5 * 4000 * 1500


@pytest.mark.parametrize("sigma", [300.0, 3000.0, 2e4])
def test_wide_kernels_take_a_sample_of_the_pixels_for_the_coarse_taps(sigma):
    size = 2 * int(sigma)
    found = bands.factors(size, *axis(size, sigma, mode="none"))
    assert sum(band.weight.size for band in found) < 20 * size
    i = np.linspace(0, size - 1, 50).astype(int)  # a column for each of these pixels
    x = np.zeros((size, len(i)), np.float32)
    x[i, np.arange(len(i))] = 1
    y = x
    for band in found:
        y = np.stack([(w[:, None] * y[f : f + len(w)]).sum(0) for f, w in zip(*band, strict=True)])
        if len(y) == size:
            break
    exact = np.exp(-0.5 * ((np.arange(size)[:, None] - i) / sigma) ** 2)
    assert np.abs(y - exact).max() < 1e-4


def test_a_long_line_is_filtered_as_by_the_exact_kernel():
    size = 20_000
    K = Separable.build((1, size), 3.0, torch.empty(()))
    x = normal(size, 2, dtype=torch.float32)
    model = dense([K], 2).engine()
    assert isinstance(model, Model)
    found = model.apply(x, None)
    rows = torch.linspace(0, size - 1, 200).long()
    exact = (-0.5 * ((rows[:, None] - torch.arange(size)) / 3.0).double().square()).exp() @ x.double()
    expected = (exact - x[rows].double()).flip(-1)  # Potts, without self-edges: messages of the other label
    torch.testing.assert_close(found[rows].double(), expected, atol=2e-3, rtol=0)


def test_long_axes_are_not_kept():
    bands.factors(100, *axis(100, 3.0))
    kept = bands._made.cache_info().currsize
    found = bands.factors(1 << 17, *axis(1 << 17, 3.0))
    assert bands._made.cache_info().currsize == kept
    assert found.up.weight.shape == (1 << 17, 5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_engine_refuses_bands_as_large_as_a_dense_matrix(dtype):
    K = Separable.build((1, 12_000), 1e5, torch.empty((), dtype=dtype))
    found = dense([K], 2).engine()
    assert isinstance(found, Refusal)
    assert "too wide" in str(found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_short_axis_is_never_too_wide(dtype):
    like = torch.empty((), dtype=dtype)
    for size, wide in ((bands.SHORT_AXIS, False), (bands.SHORT_AXIS + 1, True)):
        assert Separable.build((size,), 1e6, like).too_wide == wide
        assert (Spatial(1e6).method_over((size,), dtype) == "separable") != wide
