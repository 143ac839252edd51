"""Scaling with the number of pixels, channels and threads. The first two should be linear."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

import torch

from fwcrf.apps.bench import memory, peer, peers, pictures, speed
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Case, Plan, Work, measure

PICTURE = "coffee"
SIZES = [(100, 75), (200, 150), (500, 375), (1000, 750), (2000, 1500)]
CHANNELS = [2, 4, 8, 16, 21, 32, 50, 64, 100, 150]
THREADS = 2


def fastest(works: Mapping[str, Work], rounds: int, threads: int = THREADS) -> dict[str, float]:
    """Least seconds over the rounds, by name."""
    times = measure([Case(name, lambda w=work: w, "", threads) for name, work in works.items()], rounds)
    return {name: min(each) for (_, name, _), each in times.items()}


def by_size(plan: Plan) -> dict[str, dict[str, float]]:
    """Lattice points, nanoseconds and bytes per pixel, by size."""
    sizes = SIZES[:-1] if plan.quick else SIZES
    images = {f"{w} x {h}": pictures.named(PICTURE, w, h) for w, h in sizes}
    kernels = {size: speed.complete(image) for size, image in images.items()}
    build = fastest({size: partial(speed.complete, image) for size, image in images.items()}, plan.rounds)
    works = {size: partial(K, torch.rand(K.n, speed.CHANNELS)) for size, K in kernels.items()}
    filtering = fastest(works, plan.rounds)
    inference = {size: peers.ours(i, peer.unary(i, speed.CHANNELS), 5) for size, i in images.items()}
    whole = fastest(inference, min(plan.rounds, 3))
    extra = {f"{w} x {h}": memory.measure("fwcrf", PICTURE, w, h, speed.CHANNELS, THREADS) for w, h in sizes}
    return {
        size: {
            "lattice points": K.vertices / K.n,
            "build, ns": build[size] * 1e9 / K.n,
            "filter, ns": filtering[size] * 1e9 / K.n,
            "5 steps of mf, ns": whole[size] * 1e9 / K.n,
            "memory, bytes": extra[size] / K.n,
        }
        for size, K in kernels.items()
    }


def by_channels(plan: Plan) -> dict[int, float]:
    """Milliseconds of a filter at 500 x 375, by number of channels."""
    K = speed.complete(pictures.named(PICTURE))
    taken = fastest({str(c): partial(K, torch.rand(K.n, c)) for c in CHANNELS}, plan.rounds)
    return {int(c): seconds * 1e3 for c, seconds in taken.items()}


def by_threads(plan: Plan) -> dict[int, float]:
    """Milliseconds of five steps of mf at 500 x 375, by number of threads up to the number of cores."""
    image = pictures.named(PICTURE)
    work = {"5 steps": peers.ours(image, peer.unary(image, speed.CHANNELS), 5)}
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= (os.cpu_count() or 1)]
    return {count: fastest(work, min(plan.rounds, 5), count)["5 steps"] * 1e3 for count in counts}


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    plan = plan.at_most(3 if plan.quick else 15)
    sizes, channels, threads = by_size(plan), by_channels(plan), by_threads(plan)
    print(f"\n### Per pixel, {speed.CHANNELS} channels, {THREADS} threads (relative to the smallest)\n")
    least = next(iter(sizes.values()))
    rows = [
        [size, *(f"{value:.3g} ({value / least[key]:.2f})" for key, value in row.items())]
        for size, row in sizes.items()
    ]
    print(table(["size", *least], rows))

    print(f"\n### Filter at 500 x 375, {THREADS} threads\n")
    base = channels[CHANNELS[0]] / CHANNELS[0]
    rows = [[c, f"{ms:.2f}", f"{ms / c:.3f} ({ms / c / base:.2f})"] for c, ms in channels.items()]
    print(table(["channels", "ms", "ms per channel"], rows))

    print("\n### Five steps of mf at 500 x 375\n")
    print(table(["threads", "ms"], [[count, f"{ms:.1f}"] for count, ms in threads.items()]))
    return {"per pixel": sizes, "milliseconds by channels": channels, "milliseconds by threads": threads}
