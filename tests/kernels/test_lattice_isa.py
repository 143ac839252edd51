"""Every instruction set gives the same lattice, and answers equal to rounding."""

import sys

import pytest
import torch
from helpers import DTYPES, assert_rounding, environment, in_process, normal, points, run_fenced

from fwcrf import _core
from fwcrf.kernels import Lattice, Separable

SHAPES = [(70, 1), (70, 2), (70, 3), (2, 45, 5), (70, 8), (70, 16)]
CHANNELS = (1, 3, 8, 21, 40)


def everything():
    """The name of the instruction set, lattices as they are built, and answers."""
    lattices, answers = [], []
    for dtype in DTYPES:
        for shape in SHAPES:
            K = Lattice.uncalibrated(points(*shape, dtype=dtype))
            lattices += [t.numpy() for t in (K.index, K.splat, K.order, K.neighbors)]
            answers.append(K.diagonal().numpy())
            for blur in ("symmetric", "forward"):
                K = Lattice.build(points(*shape, dtype=dtype), blur=blur).shifted(torch.ones(shape[:-1]))
                answers += [K(normal(*shape[:-1], c, dtype=dtype)).numpy() for c in CHANNELS]
        grid = Separable.build((9, 11), (1.5, 4.0), torch.empty((), dtype=dtype))
        answers += [grid(normal(99, c, dtype=dtype)).numpy() for c in CHANNELS]
    return _core.isa(), lattices, answers


@pytest.fixture(scope="module")
def expected():
    return everything()


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512"])
def test_same_as_the_default(isa, expected):
    with environment(FWCRF_ISA=isa):
        used, lattices, answers = in_process(everything)
    _, expected_lattices, expected_answers = expected
    if used != isa:
        assert isa != "generic"
        pytest.skip(f"not available here: {used} is used instead of {isa}")
    for one, other in zip(lattices, expected_lattices, strict=True):
        assert torch.equal(torch.from_numpy(one), torch.from_numpy(other))
    for one, other in zip(answers, expected_answers, strict=True):
        assert_rounding(torch.from_numpy(one), torch.from_numpy(other), times=4)


def fenced_at_the_end():
    return run_fenced(at_end=True), _core.isa()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maps pages as on Linux")
def test_generic_stays_inside_its_arrays():
    with environment(FWCRF_ISA="generic"):
        assert in_process(fenced_at_the_end, timeout=100) == ("untouched", "generic")
