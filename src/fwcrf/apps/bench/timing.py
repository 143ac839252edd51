"""Several works timed in turns, so that a slow moment of the machine meets all of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

Work = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    rounds: int = 15
    threads: tuple[int, ...] = (1, 2)
    quick: bool = False

    def at_most(self, rounds: int) -> Plan:
        """The same with so many rounds at most, for what takes long."""
        return Plan(min(self.rounds, rounds), self.threads, self.quick)


@dataclass(frozen=True)
class Case:
    """What is timed: ``prepare`` makes ready outside the clock and returns the work."""

    name: str
    prepare: Callable[[], Work]
    picture: str = ""
    threads: int | None = None  # None: one is all it has, and its time serves for any number


@dataclass(frozen=True)
class Spread:
    min: float
    median: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        return Spread(min(values), statistics.median(values))


Times = dict[tuple[str, str, int | None], list[float]]  # of picture, case and threads: one per round


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let torch, and the library with it, use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or 1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(cases: Sequence[Case], rounds: int, clock: Callable[[], float] = perf_counter) -> Times:
    """Seconds of every case in every round, after a round that does not count.

    A round goes through all the cases, so that the times of one are spread over the whole run. The first
    fills caches and starts threads.
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
