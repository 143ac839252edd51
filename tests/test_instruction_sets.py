"""Every instruction set gives the same lattice, answers equal to rounding, and stays inside its arrays."""

import sys

import pytest
import torch
from helpers import DTYPES, Fenced, assert_rounding, environment, in_process, normal, points, run_fenced

from fwcrf import _core
from fwcrf.kernels import Lattice, Separable
from fwcrf.torch_ops.simplex import softmax

SHAPES = [(70, 1), (70, 2), (70, 3), (2, 45, 5), (70, 8), (70, 16)]
CHANNELS = (1, 3, 8, 21, 40)
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 21, 33, 150)


def filtered():
    """Lattices as they are built, and what they and grids answer."""
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
    return lattices, answers


def projected():
    """Points on the simplex, and derivatives."""
    answers = []
    for dtype in DTYPES:
        for length in LENGTHS:
            v = 2 * normal(37, length, dtype=dtype)
            g = normal(37, length, dtype=dtype, seed=1)
            for name in ("project", "softmax"):
                p = getattr(torch.ops.fwcrf, name)(v, -1.5)
                answers += [p.numpy(), getattr(torch.ops.fwcrf, f"{name}_derivative")(g, p, -1.5).numpy()]
    return answers


def project_fenced():
    for fence in (Fenced(at_end=False), Fenced(at_end=True)):
        for dtype in DTYPES:
            for length in (1, 2, 5, 8, 9, 16, 21):
                for rows in (1, 15, 16, 33):
                    x = fence(normal(rows, length, dtype=dtype))
                    p = fence(softmax(normal(rows, length, dtype=dtype)))
                    out = fence(torch.empty(rows, length, dtype=dtype))
                    for threads in (1, 2):
                        for forward in (_core.project, _core.softmax):
                            forward(x, 1.0, out, threads)
                        for derivative in (_core.project_derivative, _core.softmax_derivative):
                            derivative(x, p, 1.0, out, threads)


def everything():
    """The answers first; then the same beside pages whose use ends the process."""
    found = filtered(), projected()
    if sys.platform.startswith("linux"):  # maps pages as on Linux
        for at_end in (True, False):
            assert run_fenced(at_end) == "untouched"
        project_fenced()
    return _core.isa(), *found


@pytest.fixture(scope="module", params=["generic", "avx2", "avx512"])
def found(request):
    """From a process of its own, which is all that a choice at start-up leaves."""
    with environment(FWCRF_ISA=request.param):
        used, *found = in_process(everything, timeout=200)
    if used != request.param:
        assert request.param != "generic"
        pytest.skip(f"not available here: {used} is used instead of {request.param}")
    return found


def test_same_lattices_and_answers(found):
    (lattices, answers), _ = found
    expected_lattices, expected_answers = filtered()
    for one, other in zip(lattices, expected_lattices, strict=True):
        assert torch.equal(torch.from_numpy(one), torch.from_numpy(other))
    for one, other in zip(answers, expected_answers, strict=True):
        assert_rounding(torch.from_numpy(one), torch.from_numpy(other), times=4)


def test_same_points_on_the_simplex(found):
    for one, other in zip(found[1], projected(), strict=True):
        assert_rounding(torch.from_numpy(one), torch.from_numpy(other), times=4)
