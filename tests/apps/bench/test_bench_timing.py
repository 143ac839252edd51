"""Cases are timed in turns, and only what is between the two looks at the clock."""

import itertools
from time import process_time

import pytest
import torch

from fwcrf.apps.bench.timing import Case, Plan, Spread, measure, threads


class Clock:
    """Time that passes only when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def taking(clock, log, name, durations, threads=None, picture=""):
    durations = itertools.cycle(durations)

    def prepare():
        clock.now += 1000  # is not counted

        def work():
            log.append((name, torch.get_num_threads()))
            clock.now += next(durations)

        return work

    return Case(name, prepare, picture, threads)


def test_in_turns_after_a_round_that_does_not_count():
    clock, log = Clock(), []
    cases = [
        taking(clock, log, "a", [50, 3, 1, 2], threads=1),
        taking(clock, log, "b", [7, 5, 5, 5], threads=2),
    ]
    times = measure(cases, 3, clock)
    assert log == [("a", 1), ("b", 2)] * 4
    assert times == {("", "a", 1): [3, 1, 2], ("", "b", 2): [5, 5, 5]}
    assert Spread.of(times["", "a", 1]) == Spread(1, 2)


def test_what_has_one_thread_gets_one():
    clock, log = Clock(), []
    measure([taking(clock, log, "a", [1])], 1, clock)
    assert log == [("a", 1)] * 2


def test_a_case_given_twice_is_refused():
    cases = [Case("a", lambda: lambda: None, "cat")] * 2
    with pytest.raises(ValueError, match="each once"):
        measure(cases, 1)


def test_threads_are_restored_after_a_failure():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_fewer_rounds_for_what_takes_long():
    assert Plan(15).at_most(3).rounds == 3
    assert Plan(2, quick=True).at_most(3) == Plan(2, quick=True)
    alone = Plan(2).alone()
    assert alone.threads == (1,) and alone.clock is process_time and alone.at_most(1).clock is process_time
