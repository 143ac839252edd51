"""Timings in alternation, so that a slow phase of the machine affects all cases alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter, process_time

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """Rounds, thread counts, size and clock of a benchmark."""

    rounds: int = 15
    threads: tuple[int, ...] = (1, 2)
    quick: bool = False
    clock: Callable[[], float] = perf_counter

    def at_most(self, rounds: int) -> Plan:
        """The plan with at most ``rounds`` rounds, for slow cases."""
        return replace(self, rounds=min(self.rounds, rounds))

    def alone(self) -> Plan:
        """The plan for one thread in processor time, which other programs hardly change."""
        return replace(self, threads=(1,), clock=process_time)


@dataclass(frozen=True)
class Case:
    """A timed case. ``prepare`` runs outside the clock and returns the function to time."""

    name: str
    prepare: Callable[[], Work]
    picture: str = ""
    threads: int | None = None  # None: single-threaded, compared with any number of threads


@dataclass(frozen=True)
class Spread:
    min: float
    median: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(min(values), statistics.median(values))


Times = dict[tuple[str, str, int | None], list[float]]  # by (picture, case, threads): seconds per round


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Set the number of threads of torch and fwcrf within the block; None means 1."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(cases: Sequence[Case], rounds: int, clock: Callable[[], float] = perf_counter) -> Times:
    """Seconds of every case in every round, after a warm-up round.

    A round runs all cases once, so the times of one case are spread over the whole run. The warm-up fills
    caches and starts threads.
    """
    times: Times = {(case.picture, case.name, case.threads): [] for case in cases}
    if len(times) < len(cases):
        raise ValueError("two cases have the same picture, name and threads; expected each once.")
    for turn in range(rounds + 1):
        for case in cases:
            with threads(case.threads):
                work = case.prepare()
                start = clock()
                result = work()
                taken = clock() - start
                del work, result
            if turn:
                times[case.picture, case.name, case.threads].append(taken)
    return times
