"""Memory bandwidth of a triad a = b + s c over arrays far larger than any cache.

Bytes are counted as in STREAM: two arrays read, one written, without the write-allocate reads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.rows import spreads
from fwcrf.apps.bench.timing import Case, Plan, Work, measure

FLOATS = 32 << 20  # per array: 128 MB


def triad() -> tuple[Callable[[], Work], int]:
    """A function that prepares the triad, and the bytes that the triad moves."""
    a, b, c = (torch.ones(FLOATS) for _ in range(3))
    return lambda: lambda: torch.add(b, c, alpha=3.0, out=a), 3 * 4 * FLOATS


def gigabytes_per_second(plan: Plan) -> dict[int, float]:
    """The largest bandwidth of any round, by number of threads."""
    prepare, moved = triad()
    cases = [Case("triad", prepare, threads=count) for count in plan.threads]
    found = spreads(measure(cases, plan.rounds), scale=1.0)
    return {count: moved / found["", "triad", count].min / 1e9 for count in plan.threads}


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    found = gigabytes_per_second(plan.at_most(8))
    print(f"\n### Memory: triad over arrays of {FLOATS * 4 >> 20} MB\n")
    print(table(["threads", "GB/s"], [[count, f"{speed:.1f}"] for count, speed in found.items()]))
    return {"gigabytes per second": found}
