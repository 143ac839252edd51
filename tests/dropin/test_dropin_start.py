"""The drop-in without torch: its start in a new process, its threads, and forks."""

import subprocess
import sys
from textwrap import dedent

import pytest

MODEL = """
import sys, time
import numpy as np
import fwcrf.pydensecrf.densecrf as dcrf
from fwcrf.pydensecrf import utils

def infer(width=64, height=64, labels=21):
    rng = np.random.default_rng(0)
    crf = dcrf.DenseCRF2D(width, height, labels)
    probabilities = rng.dirichlet(np.ones(labels), width * height).T.reshape(labels, height, width)
    crf.setUnaryEnergy(utils.unary_from_softmax(probabilities))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
    crf.addPairwiseGaussian(sxy=2, compat=np.eye(labels, dtype=np.float32))
    Q, *rest = crf.startInference()
    crf.stepInference(Q, *rest)
    return np.array(crf.inference(10))
"""


def printed(code):
    done = subprocess.run(
        [sys.executable, "-c", MODEL + dedent(code)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_numpy_in_and_out_needs_no_torch_and_little_time():
    times = []
    while len(times) < 5 and min(times, default=1) > 0.4:
        loaded, seconds = printed("infer(); print('torch' in sys.modules, time.process_time())")
        assert loaded == "False"
        times.append(float(seconds))
    assert min(times) <= 0.4


def test_forbidden_labels_need_no_torch():
    code = """
    crf = dcrf.DenseCRF2D(2, 1, 2)
    crf.setUnaryEnergy(np.array([[np.inf, 0], [0, 1]], np.float32))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    print('torch' in sys.modules, np.array(crf.inference(3))[0, 0])
    """
    assert printed(code) == ["False", "0.0"]


@pytest.mark.linux
@pytest.mark.parametrize("last", ["infer()", "import torch; torch.ones(9).sum()"])
def test_torch_and_the_core_share_one_openmp_runtime(last):
    code = f"""
    infer()
    import torch
    {last}
    lines = [line.split() for line in open("/proc/self/maps")]
    print(*{{line[-1] for line in lines if "omp" in line[-1].rsplit("/", 1)[-1]}})
    """
    assert len(printed(code)) == 1


@pytest.mark.posix
def test_a_forked_process_runs_after_threads_were_used():
    code = """
    import os
    from fwcrf import _core, runtime
    _core.set_threads(2)
    size = 200, 150, 5
    expected = infer(*size)
    child = os.fork()
    if child == 0:
        same = np.allclose(infer(*size), expected, atol=1e-5) and runtime.max_threads() == 1
        os._exit(0 if same else 1)
    print(os.waitpid(child, 0)[1], runtime.max_threads(), 'torch' in sys.modules)
    """
    assert printed(code) == ["0", "2", "False"]


def test_threads_are_those_of_torch_once_it_is_loaded():
    code = """
    from fwcrf import runtime
    import torch
    torch.set_num_threads(3)
    counts = runtime.threads_for(10**9), runtime.threads_for(1)
    print(runtime.max_threads(), *counts)
    """
    assert printed(code) == ["3", "3", "1"]
