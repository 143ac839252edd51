"""Other processes and other threads beside a native call."""

import threading
import time

import numpy as np
import pytest
import torch
from helpers import assert_rounding, generator, in_process, normal

from fwcrf import _core
from fwcrf.kernels import Bilateral, Exact, Lattice, Separable

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
SHAPE, CHANNELS = (150, 140), 21
IMAGE = torch.randint(0, 256, (3, *SHAPE), generator=generator(0), dtype=torch.uint8)
NEAR = normal(1500, 5, dtype=torch.float32)


# Each gives an operator with enough to do for several threads.
BUILDERS = {
    "lattice": lambda: Bilateral().operator(IMAGE),
    "separable": lambda: Separable.build(SHAPE, 4.0, torch.empty(())),
    "exact": lambda: Exact(NEAR),
}
every_operator = pytest.mark.parametrize("name", BUILDERS)


def values(n):
    return normal(n, CHANNELS, dtype=torch.float32)


def build_and_filter(name):
    K = BUILDERS[name]()
    return K(values(K.n)).numpy()


class Inherited:
    """An operator and its input made before the fork, for torch's own operations may hang after it."""

    def __init__(self, name):
        self.K = BUILDERS[name]()
        self.x = values(self.K.n)
        self.y = self.K(self.x)

    def __call__(self):
        return self.K(self.x).numpy()


@pytest.fixture
def two_threads(num_threads):
    num_threads(2)


def check(actual, expected):
    assert_rounding(torch.from_numpy(np.asarray(actual)), expected, times=10)


@pytest.mark.posix
@every_operator
def test_filter_in_a_forked_process(name, two_threads):
    inherited = Inherited(name)
    check(in_process(inherited, start="fork", timeout=10), inherited.y)


@pytest.mark.posix
@every_operator
def test_build_in_a_forked_process(name, two_threads):
    expected = Inherited(name).y
    check(in_process(build_and_filter, name, start="fork", timeout=10), expected)


@pytest.mark.posix
def test_parent_goes_on_after_a_fork(two_threads):
    inherited = Inherited("lattice")
    in_process(inherited, start="fork", timeout=10)
    assert torch.equal(inherited.K(inherited.x), inherited.y)


def build_and_filter_all():
    return {name: build_and_filter(name) for name in BUILDERS}


def test_spawned_process():
    answers = in_process(build_and_filter_all)
    for name in BUILDERS:
        check(answers[name], Inherited(name).y)


class Filtered(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        image = IMAGE[:, :40, :50] // (i + 1)
        return Bilateral().operator(image)(values(2000))


@pytest.mark.posix
def test_data_loader_workers(two_threads):
    Inherited("lattice")
    dataset = Filtered()
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60
    )
    for i, y in enumerate(loader):
        assert_rounding(y, dataset[i], times=10)


def test_threads_of_python_filter_at_the_same_time(num_threads):
    """Scratch memory belongs to a thread."""
    num_threads(2)
    operators = [Lattice.build(normal(3000 + 500 * i, 5) * 0.5) for i in range(4)]
    inputs = [normal(K.n, 21) for K in operators]
    expected = [K(x) for K, x in zip(operators, inputs, strict=True)]
    different = []

    def work(i):
        different.extend(not torch.equal(operators[i](inputs[i]), expected[i]) for _ in range(20))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(different) == 80 and not any(different)


def native_call(name, times):
    """A native call without arguments whose work grows with ``times``."""
    if name == "build":
        many = normal(1, 40_000 * times, 12, dtype=torch.float32)
        return lambda: Lattice.uncalibrated(many)
    if name == "axis":
        line, taps = torch.zeros(times, 4000, 200), torch.ones(2000)
        return lambda: _core.filter_axis(line, taps, torch.empty_like(line), 1)
    n = 20_000 * times
    K = Lattice.uncalibrated(normal(1, n, 12, dtype=torch.float32))
    index, splat, order = (t.flatten(0, -2) for t in (K.index, K.splat, K.order))
    if name == "diagonal":
        return lambda: _core.diagonal(index, splat, order, K.neighbors, 0.5, 0.0, torch.empty(n), None, 1)
    x = torch.zeros(3, n, 16)
    tables = index, splat, splat, K.neighbors
    return lambda: _core.filter(x, *tables, None, 0.5, 0.0, 0, torch.empty_like(x), 1)


def long_call(name):
    """A native call that lasts a tenth of a second at least, on any machine."""
    times = 1
    while seconds(function := native_call(name, times)) < 0.1:
        times *= 2
    return function


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@pytest.mark.parametrize("name", ["build", "filter", "diagonal", "axis"])
def test_native_calls_let_other_threads_run(name, num_threads):
    num_threads(1)
    function = long_call(name)
    # A busy machine may keep the other thread waiting in any one attempt; a held lock does in all of them.
    assert any(ticks_during(function) >= 3 for _ in range(5))


def ticks_during(function):
    """How often another thread ran in the middle half of a call."""
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        start = time.perf_counter()
        function()
        end = time.perf_counter()
    finally:
        stop.set()
        clock.join()
    quarter = (end - start) / 4
    return sum(start + quarter < t < end - quarter for t in ticks)
