"""Rows of any width: blocks of channels, and the reads and writes at the ends of rows."""

import pytest
import torch
from helpers import DTYPES, assert_rounding, covering, normal, points, uniform

from fwcrf import _core
from fwcrf.kernels import Lattice
from fwcrf.torch_ops import lattice_torch

CHANNELS = [*range(1, 41), 63, 64, 65, 150]
# Around the widths of vectors and blocks.
EDGES = [*range(1, 10), 12, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 150]
SENTINEL = -12345.0


@covering(channels=CHANNELS, d=[2, 3, 5], dtype=DTYPES)  # some dimensions have loops of their own
def test_every_width_equals_torch(channels, d, dtype):
    native, torch_engine = (Lattice.build(points(37, d, dtype=dtype), engine=e) for e in ("native", "torch"))
    shift = uniform(37, dtype=dtype)
    x = normal(37, channels, dtype=dtype)
    assert_rounding(native(x), torch_engine(x), times=4)
    assert_rounding(native.shifted(shift)(x), torch_engine.shifted(shift)(x), times=4)


def arguments(n, dtype, shift, d=2):
    K = Lattice.uncalibrated(points(n, d, dtype=dtype) if n > 1 else normal(1, d, dtype=dtype))
    added = uniform(n, dtype=dtype) if shift else None
    return K.index, K.splat, K.splat * 2, K.neighbors, added


@covering(shape=[(1, 5), (2, 3), (3, 2), (9, 5), (40, 3)], threads=[1, 2, 5], dtype=DTYPES)
def test_memory_around_the_arrays_is_left_alone(shape, threads, dtype):
    """Rows before and after: what is read there must not matter, and nothing may be written."""
    n, d = shape
    guard = 2
    for shift, order in ((False, 0), (True, 1)):
        tables = arguments(n, dtype, shift, d)
        for channels in EDGES:
            rows = n + 2 * guard
            x = torch.full((rows, channels), float("nan"), dtype=dtype)
            x[guard:-guard] = normal(n, channels, dtype=dtype)
            out = torch.full((rows, channels), SENTINEL, dtype=dtype)
            inside = x[None, guard:-guard], out[None, guard:-guard]
            finite = _core.filter(inside[0], *tables, 0.5, -0.3, order, inside[1], threads)
            expected = lattice_torch.filter(inside[0], *tables, tap=0.5, identity=-0.3, order=order)
            assert finite
            assert_rounding(inside[1], expected, times=4)
            assert (out[:guard] == SENTINEL).all() and (out[-guard:] == SENTINEL).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_images_do_not_see_each_other(threads):
    """A value that is not finite shows in its own image only, and is reported for the whole."""
    n, channels = 9, 5
    tables = arguments(n, torch.float32, shift=True)
    x = normal(3, n, channels, dtype=torch.float32)
    x[1] = float("nan")
    out = torch.empty_like(x)
    assert not _core.filter(x, *tables, 0.5, 0.0, 0, out, threads)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()


@pytest.mark.parametrize("threads", [1, 2])
def test_scratch_memory_of_an_earlier_call_does_not_show(threads):
    """Large and not finite first, then small."""
    large, small = (
        arguments(400, torch.float32, shift=True, d=5),
        arguments(9, torch.float32, shift=True, d=3),
    )
    expected = torch.empty(1, 9, 3)
    x = normal(1, 9, 3, dtype=torch.float32)
    assert _core.filter(x, *small, 0.5, -0.3, 0, expected, threads)
    bad = torch.full((1, 400, 32), float("nan"))
    assert not _core.filter(bad, *large, 0.5, -0.3, 0, torch.empty_like(bad), threads)
    out = torch.empty_like(expected)
    assert _core.filter(x, *small, 0.5, -0.3, 0, out, threads)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


WRONG = {
    "x of other length": lambda a: {"x": a["x"][:, 1:].contiguous()},
    "output of other shape": lambda a: {"out": torch.empty(1, 9, 4)},
    "output of other dtype": lambda a: {"out": torch.empty(1, 9, 3, dtype=torch.float64)},
    "output not contiguous": lambda a: {"out": torch.empty(1, 3, 9).mT},
    "weights of other dtype": lambda a: {"splat": a["splat"].double()},
    "weights of other shape": lambda a: {"slice": a["slice"][:, 1:].contiguous()},
    "neighbors of other shape": lambda a: {"neighbors": a["neighbors"][1:].contiguous()},
    "shift of other length": lambda a: {"shift": torch.zeros(8)},
    "no such order": lambda a: {"order": 3},
    "no threads": lambda a: {"threads": 0},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_native_filter_refuses_what_would_corrupt_memory(change):
    names = ("index", "splat", "slice", "neighbors", "shift")
    call = dict(zip(names, arguments(9, torch.float32, shift=True), strict=True))
    call |= {"x": normal(1, 9, 3, dtype=torch.float32), "out": torch.empty(1, 9, 3)}
    call |= {"tap": 0.5, "identity": 0.0, "order": 0, "threads": 1}
    assert _core.filter(**call)
    with pytest.raises((ValueError, TypeError)):
        _core.filter(**(call | change(call)))
