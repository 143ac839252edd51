"""Results of steps in one call, of which the kernels alone read all but the last: they are not written."""

import numpy as np
import pytest

from fwcrf import _core
from fwcrf.pydensecrf.densecrf import NormalizationType
from fwcrf.pydensecrf.kernel import kernel
from fwcrf.runtime import threads_for

SOFTMAX = _core.maps().index("softmax")
N = 700


def model(shifts):
    made = _core.ModelF32()
    for seed, d in enumerate((2, 5)):
        points = np.random.default_rng(seed).uniform(0, 6, (N, d)).astype(np.float32)
        K = kernel(points, NormalizationType.NORMALIZE_SYMMETRIC)
        shift = np.full((1, N), 0.3 * seed, np.float32) if shifts else None
        made.add_lattice(K.index[None], K.splat[None], K.slice[None], K.neighbors, shift, 0.5, 0.0, 1)
    return made


def run(native, unary, updates, outs, start):
    weights, moves = np.array([1.0, 2.0]), np.array(updates, np.float64)
    threads = threads_for(unary.size * 1000)
    begin = (SOFTMAX, -1.0, None, outs[0], 1.0) if start is unary else None
    native.run(
        start, begin, unary, weights, [None, None], moves, outs, [], None, None, None, False, threads, [], [],
        None,
    )  # fmt: skip
    return outs[-1]


@pytest.mark.parametrize("labels", [3, 21, 40, 80])
@pytest.mark.parametrize("shifts", [False, True])
@pytest.mark.parametrize("partial", [None, 0, 2])  # the update that goes half of the way
def test_steps_in_one_call_are_single_steps(labels, shifts, partial):
    native, rng = model(shifts), np.random.default_rng(labels)
    unary = rng.uniform(0, 3, (1, N, labels)).astype(np.float32)
    updates = [(SOFTMAX, -1.0, 0.0, 0.5 if k == partial else 1.0, 1.0, 0.0, 0.0) for k in range(4)]
    # Memory that was never written may hold anything.
    together = run(native, unary, updates, [np.full_like(unary, np.nan)] * 4, unary)

    x = np.empty_like(unary)
    _core.softmax(unary[0], -1.0, x[0], 1)
    for update in updates:
        x = run(native, unary, [update], [np.empty_like(x)], x)
    np.testing.assert_allclose(together, x, atol=2e-6)


def test_results_in_arrays_of_their_own_are_written():
    native, unary = model(False), np.random.default_rng(0).uniform(0, 3, (1, N, 21)).astype(np.float32)
    outs = [np.full_like(unary, np.nan) for _ in range(3)]
    run(native, unary, [(SOFTMAX, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0)] * 3, outs, unary)
    for out in outs:
        np.testing.assert_allclose(out.sum(-1), 1, rtol=1e-4)
