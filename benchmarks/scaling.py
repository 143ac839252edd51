"""Growth with the number of pixels and of channels: both should be linear."""

from __future__ import annotations

from time import perf_counter

import torch

from benchmarks import memory, pictures, speed
from benchmarks.report import table
from fwcrf.kernels import Bilateral, Lattice

PICTURE = "coffee"
SIZES = [(100, 75), (200, 150), (500, 375), (1000, 750), (2000, 1500)]
CHANNELS = [2, 4, 8, 16, 21, 32, 50, 64, 100, 150]
THREADS = 2


def fastest(work, rounds: int) -> float:
    """Seconds, the least of some rounds after one that does not count."""
    times = []
    for _ in range(rounds + 1):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times[1:])


def by_size(width: int, height: int, rounds: int) -> dict[str, float]:
    image = pictures.named(PICTURE, width, height)
    n = width * height
    K = Bilateral().operator(image).without_self_edges()
    assert isinstance(K, Lattice)
    x = torch.rand(n, speed.CHANNELS)
    return {
        "vertices": K.vertices / n,
        "build": fastest(lambda: Bilateral().operator(image).without_self_edges(), rounds) * 1e9 / n,
        "filter": fastest(lambda: K(x), rounds) * 1e9 / n,
        "memory": memory.measure("fwcrf", PICTURE, width, height, speed.CHANNELS, THREADS) / n,
    }


def run(rounds: int = 15) -> dict[str, object]:
    """Measure, print, and return everything."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        sizes = {f"{w} x {h}": by_size(w, h, rounds) for w, h in SIZES}
        K = Bilateral().operator(pictures.named(PICTURE)).without_self_edges()
        fields = {c: torch.rand(K.n, c) for c in CHANNELS}
        channels = {c: fastest(lambda x=x: K(x), rounds) * 1e3 for c, x in fields.items()}
    finally:
        torch.set_num_threads(before)

    print(f"\n### Per pixel, {speed.CHANNELS} channels, {THREADS} threads (relative to the smallest)\n")
    units = {
        "vertices": "lattice points",
        "build": "build, ns",
        "filter": "filter, ns",
        "memory": "memory, bytes",
    }
    least = next(iter(sizes.values()))
    rows = [
        [size, *(f"{row[key]:.3g} ({row[key] / least[key]:.2f})" for key in units)]
        for size, row in sizes.items()
    ]
    print(table(["size", *units.values()], rows))

    print(f"\n### Filter at 500 x 375, {THREADS} threads\n")
    base = channels[CHANNELS[0]] / CHANNELS[0]
    rows = [[str(c), f"{ms:.2f}", f"{ms / c:.3f} ({ms / c / base:.2f})"] for c, ms in channels.items()]
    print(table(["channels", "ms", "ms per channel"], rows))
    return {"per pixel": sizes, "milliseconds by channels": channels}
