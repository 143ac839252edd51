"""Growth with the number of pixels and of channels: both should be linear."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import numpy as np
import torch

from fwcrf.bench import memory, pictures, speed
from fwcrf.bench.report import table
from fwcrf.kernels import Bilateral, Lattice

PICTURE = "coffee"
SIZES = [(100, 75), (200, 150), (500, 375), (1000, 750), (2000, 1500)]
CHANNELS = [2, 4, 8, 16, 21, 32, 50, 64, 100, 150]
THREADS = 2


def fastest(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds, the least of some rounds after one that does not count; in turns, as in ``speed``."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            start = perf_counter()
            work()
            times[name].append(perf_counter() - start)
    return {name: min(each[1:]) for name, each in times.items()}


def operator(image: np.ndarray) -> Lattice:
    K = Bilateral().operator(image).without_self_edges()
    assert isinstance(K, Lattice)
    return K


def by_size(rounds: int) -> dict[str, dict[str, float]]:
    """Per pixel: lattice points, nanoseconds and bytes."""
    images = {f"{w} x {h}": pictures.named(PICTURE, w, h) for w, h in SIZES}
    kernels = {size: operator(image) for size, image in images.items()}
    build = fastest({size: partial(operator, image) for size, image in images.items()}, rounds)
    works = {size: partial(K, torch.rand(K.n, speed.CHANNELS)) for size, K in kernels.items()}
    filtering = fastest(works, rounds)
    extra = {f"{w} x {h}": memory.measure("fwcrf", PICTURE, w, h, speed.CHANNELS, THREADS) for w, h in SIZES}
    return {
        size: {
            "lattice points": K.vertices / K.n,
            "build, ns": build[size] * 1e9 / K.n,
            "filter, ns": filtering[size] * 1e9 / K.n,
            "memory, bytes": extra[size] / K.n,
        }
        for size, K in kernels.items()
    }


def by_channels(rounds: int) -> dict[str, float]:
    """Milliseconds of a filter at 500 x 375."""
    K = operator(pictures.named(PICTURE))
    taken = fastest({str(c): partial(K, torch.rand(K.n, c)) for c in CHANNELS}, rounds)
    return {c: seconds * 1e3 for c, seconds in taken.items()}


def run(rounds: int = 15) -> dict[str, object]:
    """Measure, print, and return everything."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        sizes, channels = by_size(rounds), by_channels(rounds)
    finally:
        torch.set_num_threads(before)

    print(f"\n### Per pixel, {speed.CHANNELS} channels, {THREADS} threads (relative to the smallest)\n")
    least = next(iter(sizes.values()))
    rows = [
        [size, *(f"{value:.3g} ({value / least[key]:.2f})" for key, value in row.items())]
        for size, row in sizes.items()
    ]
    print(table(["size", *least], rows))

    print(f"\n### Filter at 500 x 375, {THREADS} threads\n")
    base = channels[str(CHANNELS[0])] / CHANNELS[0]
    rows = [[c, f"{ms:.2f}", f"{ms / int(c):.3f} ({ms / int(c) / base:.2f})"] for c, ms in channels.items()]
    print(table(["channels", "ms", "ms per channel"], rows))
    return {"per pixel": sizes, "milliseconds by channels": channels}
