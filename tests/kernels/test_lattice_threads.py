"""The lattice does not depend on the number of threads, its answers only by rounding."""

import pytest
import torch
from helpers import DTYPES, assert_rounding, normal

from fwcrf.kernels import Lattice
from fwcrf.torch_ops.native import threads_for

THREADS = [1, 2, 3, 4]
N, D, CHANNELS = 30_000, 5, 21


@pytest.fixture(scope="module", params=DTYPES, ids=str)
def features(request):
    """A smooth image with some noise: pixels nearby share cells, as in a photograph."""
    across = torch.linspace(0, 3, N, dtype=torch.float64).unsqueeze(-1)
    return (across * torch.arange(1.0, D + 1) + 0.2 * normal(N, D)).to(request.param)


def test_enough_work_for_threads(num_threads):
    num_threads(4)
    assert threads_for(N * D * 8) >= 3
    assert threads_for(N * CHANNELS * (D + 1)) == 4


@pytest.mark.parametrize("threads", THREADS[1:])
def test_same_lattice(features, threads, num_threads):
    num_threads(1)
    expected = Lattice.uncalibrated(features)
    num_threads(threads)
    lattice = Lattice.uncalibrated(features)
    for name in ("index", "splat", "order", "neighbors"):
        assert torch.equal(getattr(lattice, name), getattr(expected, name)), name
    assert torch.equal(lattice.diagonal(), expected.diagonal())


@pytest.mark.parametrize("threads", THREADS[1:])
def test_same_lattice_of_a_batch(threads, num_threads):
    """Threads divide the points without regard to images."""
    features = normal(3, 9_000, 4) * 0.7
    num_threads(1)
    expected = Lattice.uncalibrated(features)
    num_threads(threads)
    lattice = Lattice.uncalibrated(features)
    for name in ("index", "splat", "order", "neighbors"):
        assert torch.equal(getattr(lattice, name), getattr(expected, name)), name


@pytest.mark.parametrize("blur", ["symmetric", "forward"])
@pytest.mark.parametrize("threads", THREADS)
def test_same_answer(features, blur, threads, num_threads):
    num_threads(1)
    K = Lattice.build(features, blur=blur)
    K = K.shifted(torch.ones(N, dtype=features.dtype))
    x = normal(N, CHANNELS, dtype=features.dtype)
    expected = K(x)
    num_threads(threads)
    y = K(x)
    assert_rounding(y, expected, times=4)
    for _ in range(3):
        assert torch.equal(K(x), y), "differs from run to run"


@pytest.mark.parametrize("threads", [2, 4])
def test_large_lattice_has_fewer_splatters(threads, num_threads):
    """Where there are more vertices than points, threads cannot each have a lattice of their own."""
    features = normal(20_000, 8) * 3
    K = Lattice.uncalibrated(features)
    assert K.vertices > K.n
    x = normal(K.n, 8)
    num_threads(1)
    expected = K(x)
    num_threads(threads)
    assert_rounding(K(x), expected, times=4)


@pytest.mark.parametrize("threads", [1, 2])
def test_not_finite_is_found_by_any_thread(features, threads, num_threads):
    num_threads(threads)
    K = Lattice.uncalibrated(features)
    for place in (0, N // 2 - 1, N // 2, N - 1):
        x = torch.zeros(N, CHANNELS, dtype=features.dtype)
        x[place, -1] = float("nan")
        with pytest.raises(ValueError, match="x has 1 values that are NaN or infinite"):
            K(x)
