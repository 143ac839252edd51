"""Threads of Python, other processes, and the lock of the interpreter."""

import itertools
import threading
import time

import pytest
import torch
import work
from helpers import in_process
from threads import compare

import fwcrf
from fwcrf import _core, pairwise
from fwcrf.kernels import Bilateral, Spatial


@pytest.mark.parametrize("inner", [1, 2])
def test_eight_threads_give_what_one_gives(inner, num_threads):
    num_threads(inner)
    assert compare(8, seconds=0.0, rounds=6) == 48


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.posix
def test_refine_solve_and_backward_in_a_forked_process(num_threads):
    """After OpenMP and autograd were at work here: a child has none of their threads."""
    num_threads(2)
    work.large()
    expected = work.everything(1)
    assert work.same(in_process(work.everything, 1, start="fork", timeout=100), expected)
    assert work.same(work.everything(1), expected)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.posix
def test_large_work_in_a_forked_process(num_threads):
    num_threads(2)
    labels, *_ = work.large()
    forked, *_ = in_process(work.large, start="fork", timeout=100)
    assert (labels == forked).mean() > 0.999


def test_in_a_spawned_process():
    assert work.same(in_process(work.everything, 1, timeout=100), work.everything(1))


def _calls():
    """Single native calls of some hundredths of a second."""
    image = torch.rand(3, 300, 300) * 255
    P = pairwise.of_image([Spatial(3.0), Bilateral(80.0, 13.0)], image, 21)
    x, u = torch.rand(90_000, 21), torch.rand(90_000, 21)
    rows, out = torch.rand(50_000, 300), torch.empty(50_000, 300)
    mrf = fwcrf.SparseMRF(x, fwcrf.graphs.grid((300, 300))[0], fwcrf.graphs.Potts())
    on_graph = mrf.energy().pairwise
    grid, turned = torch.rand(1, 8000, 4000), torch.empty(1, 4000, 8000)
    return {
        "model": lambda: P.plus(x, u),
        "graph": lambda: on_graph.plus(x, u),
        "descent": lambda: on_graph.descend(u, x, max_sweeps=5, restarts=0, seed=0),
        "project": lambda: _core.project(rows, 1.0, out, 1),
        "softmax": lambda: _core.softmax(rows, 1.0, out, 1),
        "transpose": lambda: _core.transpose(grid, turned, 1),
    }


@pytest.mark.parametrize("name", ["model", "graph", "descent", "project", "softmax", "transpose"])
def test_native_calls_let_other_threads_run(name, num_threads):
    num_threads(1)
    call = _calls()[name]
    # A busy machine may keep the other thread waiting in any one attempt; a held lock does in all of them.
    assert min(_longest_wait(call) for _ in range(8)) < 0.7


def _longest_wait(call):
    """The longest time that another thread had to wait, over the duration of the call."""
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    clock = threading.Thread(target=tick)
    clock.start()
    try:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
    finally:
        stop.set()
        clock.join()
    inside = [start, *(t for t in ticks if start < t < end), end]
    return max(b - a for a, b in itertools.pairwise(inside)) / (end - start)
