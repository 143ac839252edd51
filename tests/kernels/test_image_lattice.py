"""The lattice of images in one native call, against features, lattice and normalization in turn."""

import pytest
import torch
from torch.testing import assert_close

from fwcrf import _core
from fwcrf.features import bilateral
from fwcrf.kernels import Bilateral, Lattice
from fwcrf.kernels.kernel import Domain

SHAPES = [(1, 1, 1), (1, 2, 3), (23, 31, 3), (90, 70, 3), (6, 7, 8, 2), (40, 4)]


def image(shape, batch, dtype, seed=0):
    """Whole numbers from 0 to 255, smooth enough for pixels to share vertices: ``(*batch, n, channels)``."""
    coarse = torch.rand(*batch, *shape, generator=torch.Generator().manual_seed(seed))
    return (60 * coarse).round().add(100).to(dtype).flatten(len(batch), -2)


def both(values, grid, xy, color, origin=None):
    """The kernel in one call, and call by call."""
    one = Bilateral(xy, color).on(Domain(values, grid, origin))
    assert isinstance(one, Lattice)
    return one, Lattice.symmetric(bilateral(values, grid, xy, color, origin))


@pytest.mark.filterwarnings("ignore:all .* points lie in lattice cells of their own")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_one_call_builds_the_lattice_that_single_calls_build(shape, batch, dtype):
    grid = shape[:-1]
    values = image(shape, batch, dtype)
    for origin in (None, tuple(range(2, 2 + len(grid)))):
        one, expected = both(values, grid, 7.0, 13.0, origin)
        assert torch.equal(one.index, expected.index) and torch.equal(one.neighbors, expected.neighbors)
        close = dict(rtol=1e-5, atol=1e-6) if dtype == torch.float32 else dict(rtol=1e-12, atol=1e-13)
        assert_close(one.splat, expected.splat, **close)
        assert_close(one.shift, expected.shift, **close)
        assert_close(one.diagonal(), expected.diagonal(), **close)
        x = torch.rand(*batch, values.shape[-2], 2, dtype=dtype)
        assert_close(one.without_self_edges()(x), expected.without_self_edges()(x), **close)


def test_bytes_in_any_layout_give_the_lattice_of_their_numbers():
    values = image((17, 19, 3), (2,), torch.uint8)
    planes = values.mT.contiguous().mT
    expected = Lattice.of_image(values.float(), (17, 19), (5.0, 6.0, 10.0, 11.0, 12.0), None, torch.float32)
    for given in (values, planes):
        found = Lattice.of_image(given, (17, 19), (5.0, 6.0, 10.0, 11.0, 12.0), None, torch.float32)
        assert torch.equal(found.splat, expected.splat) and torch.equal(found.index, expected.index)


def test_kernels_that_one_call_does_not_take_are_built_call_by_call():
    many = image((5, 6, 4), (), torch.float32)  # six features
    assert Lattice.of_image(many, (5, 6), (5.0, 5.0, 9.0, 9.0, 9.0, 9.0), None, torch.float32) is None
    assert isinstance(Bilateral(5, 9).on(Domain(many, (5, 6))), Lattice)
    learned = torch.tensor(9.0, requires_grad=True)
    K = Bilateral(5, learned).on(Domain(image((5, 6, 3), (), torch.float32), (5, 6)))
    assert K.splat.requires_grad


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_values_that_are_not_finite_are_refused_by_name(bad):
    values = image((9, 9, 3), (), torch.float32)
    values[40, 1] = bad
    with pytest.raises(ValueError, match="image has 1 values that are NaN or infinite"):
        Bilateral(5, 9).on(Domain(values, (9, 9)))


def test_features_that_overflow_or_lie_too_far_out_are_refused():
    values = torch.full((9, 3), 1e30)
    with pytest.raises(ValueError, match="features are NaN or infinite"):
        Bilateral(5, 1e-10).on(Domain(values, (3, 3)))
    with pytest.raises(ValueError, match="standard deviations from the origin"):
        Bilateral(5, 1.0).on(Domain(values, (3, 3)))


def test_arguments_that_do_not_fit_are_refused_before_memory_is_touched():
    n, corners = 12, 6
    index = torch.empty(1, n, corners, dtype=torch.int32).numpy()
    weight, rows = torch.empty(1, n, corners).numpy(), torch.empty(1, n).numpy()
    given = dict(
        values=torch.zeros(1, n, 3).numpy(), sizes=[3, 4], scales=[1.0] * 5, origin=[], scale=[1.0] * 5,
        points=torch.arange(4).numpy(), rows=2, place=-0.3, constant=1.0, tap=0.5, identity=-0.1, least=1e-6,
        most=8.0, index=index, weight=weight, shift=rows, minus=rows.copy(), threads=1,
    )  # fmt: skip
    assert _core.image_lattice(**given) is not None
    wrong = dict(
        sizes=[3, 5], scales=[1.0] * 4, origin=[1], points=torch.tensor([0, 12]).numpy(), rows=4, place=0.1,
        values=torch.zeros(1, n, 3, dtype=torch.float64).numpy(), index=index[:, :6], threads=0,
    )  # fmt: skip
    for name, value in wrong.items():
        with pytest.raises(ValueError):
            _core.image_lattice(**{**given, name: value})
