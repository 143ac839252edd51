"""Several Python threads at work at once, their answers compared with those of one."""

from __future__ import annotations

import threading
import time

from work import WORK, same


def compare(num_threads: int, seconds: float, rounds: int) -> int:
    """How many answers were compared; each thread works for so long, and at least for so many rounds."""
    expected = {(work.__name__, seed): work(seed) for work in WORK for seed in range(num_threads)}
    counts, problems = [0] * num_threads, []
    start = threading.Barrier(num_threads)

    def run(number: int) -> None:
        try:
            start.wait()
            until, done = time.monotonic() + seconds, 0
            while done < rounds or time.monotonic() < until:
                # All three at the same time, in an order of each thread's own.
                work = WORK[(number + done) % len(WORK)]
                seed = (number * 3 + done) % num_threads
                if not same(work(seed), expected[work.__name__, seed]):
                    problems.append((work.__name__, seed))
                done += 1
                counts[number] += 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems[:3]
    return sum(counts)
