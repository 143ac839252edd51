"""Every instruction set gives the same lattice, answers equal to rounding, and stays inside its arrays."""

import platform
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import DTYPES, Fenced, assert_rounding, environment, in_process, normal, points, run_fenced

from fwcrf import _core
from fwcrf.kernels import Lattice, Separable
from fwcrf.pydensecrf import densecrf
from fwcrf.torch_ops.simplex import softmax

SHAPES = [(70, 1), (70, 2), (70, 3), (2, 45, 5), (70, 8), (70, 16)]
CHANNELS = (1, 3, 8, 21, 40)
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 21, 33, 150)


def isa():
    return _core.isa()


@pytest.mark.linux
@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares instruction sets of x86")
def test_the_instruction_sets_of_this_processor():
    info = Path("/proc/cpuinfo").read_text()
    flags = {*re.search(r"^flags\s*:(.*)$", info, re.M)[1].split()}
    avx2, avx512 = {"avx2", "fma"} <= flags, {f"avx512{part}" for part in ("f", "dq", "bw", "vl")} <= flags
    zen4 = "AuthenticAMD" in info and re.search(r"^cpu family\s*: 25$", info, re.M)
    best = "avx512" if avx512 else "avx2" if avx2 else "generic"
    with environment(FWCRF_ISA="avx512"):
        assert in_process(isa, timeout=100) == best
    with environment(FWCRF_ISA=""):
        assert in_process(isa, timeout=100) == ("avx2" if avx512 and zen4 else best)


def isa_of_rows():
    """For rows of 2, 8, 9, 16, 17, 21, 24, 25, 32 and 33 floats."""
    return [_core.isa_for_rows(4 * length) for length in (2, 8, 9, 16, 17, 21, 24, 25, 32, 33)]


def test_rows_with_less_padding_have_narrower_vectors():
    with environment(FWCRF_ISA=""):
        alone, found = in_process(isa, timeout=100), in_process(isa_of_rows, timeout=100)
    narrow = "avx2" if alone == "avx512" else alone
    assert found == [narrow] * 2 + [alone] * 2 + [narrow] * 3 + [alone] * 3
    with environment(FWCRF_ISA=alone):
        assert in_process(isa_of_rows, timeout=100) == [alone] * 10


def marginals():
    """After three steps with numbers and with a matrix."""
    found = []
    for labels in (2, 5, 8, 12, 21, 24, 30):
        rng = np.random.default_rng(labels)
        for compat in (3.0, rng.uniform(0, 3, (labels, labels)).astype(np.float32)):
            crf = densecrf.DenseCRF2D(23, 17, labels)
            crf.setUnaryEnergy(rng.uniform(0, 3, (labels, 391)).astype(np.float32))
            crf.addPairwiseGaussian(sxy=1, compat=compat)
            found.append(np.array(crf.inference(3)))
    return found


def test_narrower_vectors_have_the_same_answers():
    with environment(FWCRF_ISA=""):
        found = in_process(marginals, timeout=100)
    with environment(FWCRF_ISA="avx512"):
        expected = in_process(marginals, timeout=100)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-6)


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
