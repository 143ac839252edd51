"""Time of the two common oracles, beside entmax's sparsemax, torch's softmax and one lattice filter.

*Flat* and *peaked* scores are normal numbers of deviation 1 and 5. *Classifier* scores have one label
well ahead in most places and a rival along the borders between regions, as a network's have.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor

from fwcrf.bench import pictures, report
from fwcrf.bench.report import table
from fwcrf.kernels import Bilateral
from fwcrf.simplex import project_onto_simplex, softmax

try:
    from entmax import sparsemax
except ImportError:
    sparsemax = None

HEIGHT, WIDTH, LABELS = 375, 500, 21
TARGETS = {"1": 20.0, "2": 35.0}

Times = dict[str, dict[str, float]]  # case, statistic

# What is compared: name, ours, the other's, and whether the projection's target holds for it.
RATIOS = [
    *((f"projection, {kind}: sparsemax", f"projection, {kind}", f"sparsemax, {kind}", True)
      for kind in ("flat", "peaked", "classifier")),
    *((f"softmax, {kind}: torch", f"softmax, {kind}", f"torch.softmax, {kind}", False)
      for kind in ("flat", "classifier")),
    ("projection, flat: one lattice filter", "projection, flat", "filter", False),
    ("softmax, flat: one lattice filter", "softmax, flat", "filter", False),
    ("projection, flat: a copy", "projection, flat", "copy", False),
    ("softmax, flat: a copy", "softmax, flat", "copy", False),
]  # fmt: skip


def scores() -> dict[str, Tensor]:
    """Named arrays of one row of scores per pixel."""
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(HEIGHT * WIDTH, LABELS, generator=generator)
    y, x = torch.meshgrid(torch.linspace(0, 4, HEIGHT), torch.linspace(0, 5, WIDTH), indexing="ij")
    waves = torch.randn(LABELS, 3, generator=generator)
    smooth = torch.sin(waves[:, :1] * x.flatten() + waves[:, 1:2] * y.flatten() + 6 * waves[:, 2:])
    return {"flat": flat, "peaked": 5 * flat, "classifier": (12 * smooth.T + 0.5 * flat).contiguous()}


def cases() -> dict[str, Callable[[], object]]:
    arrays = scores()
    target = torch.empty_like(arrays["flat"])
    K = Bilateral(80.0, 13.0).operator(pictures.named(pictures.names()[0])).without_self_edges()
    x = torch.rand(K.n, LABELS)
    timed: dict[str, Callable[[], object]] = {
        "copy": lambda: target.copy_(arrays["flat"]),
        "filter": lambda: K(x),
    }
    for kind, v in arrays.items():
        timed[f"projection, {kind}"] = lambda v=v: project_onto_simplex(v)
        if sparsemax:
            timed[f"sparsemax, {kind}"] = lambda v=v: sparsemax(v, -1)
        timed[f"softmax, {kind}"] = lambda v=v: softmax(v)
        timed[f"torch.softmax, {kind}"] = lambda v=v: torch.softmax(v, -1)
    return timed


def measure(rounds: int) -> Times:
    """Minimum and median of each case in milliseconds; the cases take turns."""
    timed = cases()
    times: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds + 1):
        for name, work in timed.items():
            start = perf_counter()
            result = work()
            taken = (perf_counter() - start) * 1000
            del result
            if turn:  # the first round fills caches and starts threads
                times[name].append(taken)
    return {name: {"min": min(t), "median": statistics.median(t)} for name, t in times.items()}


def run(rounds: int = 15, threads: tuple[int, ...] = (1, 2)) -> dict[str, object]:
    """Measure, print, and return everything."""
    before = torch.get_num_threads()
    results: dict[str, Times] = {}
    try:
        for count in threads:
            torch.set_num_threads(count)
            results[str(count)] = measure(rounds)
    finally:
        torch.set_num_threads(before)
    print(f"\n### {HEIGHT * WIDTH} x {LABELS}, milliseconds, least (median) of {rounds} rounds\n")
    names = list(next(iter(results.values())))
    rows = [
        [name, *(f"{times[name]['min']:.2f} ({times[name]['median']:.2f})" for times in results.values())]
        for name in names
    ]
    print(table(["", *(f"threads: {count}" for count in results)], rows))
    print("\n### The other's time over ours, of minima (of medians)\n")
    rows = [
        [
            label,
            *(cell for count, times in results.items() for cell in _ratio(times, ours, theirs, count, aim)),
        ]
        for label, ours, theirs, aim in RATIOS
        if theirs in names
    ]
    print(table(["", *(cell for count in results for cell in (f"threads: {count}", "target"))], rows))
    return {"milliseconds": results, "cores at hand": report.cores_at_hand()}


def _ratio(times: Times, ours: str, theirs: str, count: str, aim: bool) -> tuple[str, str]:
    least, middle = (times[theirs][key] / times[ours][key] for key in ("min", "median"))
    return f"{least:.2f} ({middle:.2f})", f"{TARGETS[count]:g}" if aim and count in TARGETS else ""
