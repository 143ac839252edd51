"""The engine of several processes on this machine."""

import os
import signal
import time
from pathlib import Path

import pytest
from slow_jobs import act

from fwcrf.apps.batch.local import Failure, run


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_every_item_once(num_workers):
    assert sorted(run(act, range(4), num_workers=num_workers)) == [(i, i**2) for i in range(4)]


def test_nothing_to_do():
    assert list(run(act, [], num_workers=2)) == []


@pytest.mark.posix
def test_mishaps_cost_one_item_each():
    items = ["raise", 2, "die", 3, "bug", "exit", "memory", 4, "die"]
    found = dict(run(act, items, num_workers=2))
    assert found == {
        0: Failure("a sentence"),
        1: 4,
        2: Failure("the worker process was ended by SIGKILL; was there too little memory?"),
        3: 9,
        4: Failure("KeyError: 'bug'"),
        5: Failure("the worker process ended with status 3"),
        6: Failure("there is too little memory for it"),
        7: 16,
        8: found[2],
    }


def children():
    """The processes that this one has started and that are alive."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for path in tasks for pid in path.read_text().split()}


@pytest.mark.linux
def test_workers_end_with_the_loop_over_them():
    before = children()
    for _ in run(time.sleep, [0, 60, 60], num_workers=2):
        assert len(children() - before) >= 2
        break
    # The tracker of the multiprocessing module remains, once it is there.
    assert len(children() - before) <= 1


def stubborn(item):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(item)


def test_a_worker_that_does_not_listen_is_ended_all_the_same():
    start = time.monotonic()
    for _ in run(stubborn, [0, 60], num_workers=1):
        break
    assert time.monotonic() - start < 50
