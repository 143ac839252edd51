"""Jobs in several processes of this machine.

Each worker has its own pipe. If a worker dies, for example for lack of memory, its item fails and another
worker starts. If the parent dies, the workers exit.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any


@dataclass(frozen=True)
class Failure:
    """The reason why a job has no result."""

    message: str


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int = -1  # of its current item


class Pool:
    """Worker processes for a job, a context manager that stops them at the end.

    At most ``num_workers``, by default one per processor. Each worker calls ``prepare`` first.
    """

    def __init__(
        self,
        job: Callable[[Any], Any],
        num_workers: int | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.job = job
        self.num_workers: int = num_workers or processors()
        self.prepare = prepare
        self.idle: list[_Worker] = []
        self.busy: list[_Worker] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.idle + self.busy:
            _stop(worker)
        self.idle, self.busy = [], []

    def run(self, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yield (index of an item, result) in order of completion; a ``Failure`` if the job raised."""
        waiting = iter(range(len(items)))
        for _, index in zip(range(self.num_workers), waiting, strict=False):
            self._begin(items[index], index)
        while self.busy:
            ready = wait([worker.pipe for worker in self.busy])
            for worker in [w for w in self.busy if w.pipe in ready]:
                index, result = worker.index, self._answer(worker)
                following = next(waiting, None)
                if following is not None:
                    self._begin(items[following], following)
                yield index, result

    def _begin(self, item: Any, index: int) -> None:
        worker = self.idle.pop() if self.idle else _started(self.job, self.prepare)
        worker.index = index
        self.busy.append(worker)
        # The death of a worker is handled in _answer.
        with suppress(ConnectionError):
            worker.pipe.send(item)

    def _answer(self, worker: _Worker) -> Any:
        self.busy.remove(worker)
        try:
            answer = worker.pipe.recv()
        except (EOFError, ConnectionError):
            answer = Failure(_cause_of_death(worker.process))
            _stop(worker)
        else:
            self.idle.append(worker)
        return answer


def run(
    job: Callable[[Any], Any],
    items: Sequence[Any],
    *,
    num_workers: int | None = None,
    prepare: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Any]]:
    """Results of ``Pool.run``, with a pool that exists for this call only."""
    with Pool(job, num_workers, prepare) as pool:
        yield from pool.run(items)


def processors() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _started(job: Callable[[Any], Any], prepare: Callable[[], None] | None) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, job, prepare), daemon=True)
    process.start()
    # The worker holds the only copy of this end, so that its death closes the pipe.
    theirs.close()
    return _Worker(process, ours)


def _stop(worker: _Worker) -> None:
    worker.pipe.close()
    worker.process.kill()
    worker.process.join()


def _cause_of_death(process: BaseProcess) -> str:
    process.join()
    code = process.exitcode or 0
    if code < 0:  # a signal, which Windows has not
        name = signal.Signals(-code).name
        hint = "; was there too little memory?" if name == "SIGKILL" else ""
        return f"the worker process was ended by {name}{hint}"
    return f"the worker process ended with status {code}"


def _work(pipe: Connection, job: Callable[[Any], Any], prepare: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too and stops the workers
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()
    while True:
        try:
            item = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(job, item))


def attempt(job: Callable[[Any], Any], item: Any) -> Any:
    """Result of ``job(item)``, or a ``Failure`` with the message of the exception."""
    try:
        return job(item)
    except MemoryError as error:
        return Failure(": ".join(filter(None, ("there is too little memory for it", str(error)))))
    # These messages are complete sentences; the name of the class adds nothing.
    except (ValueError, OSError) as error:
        return Failure(str(error))
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}")


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
