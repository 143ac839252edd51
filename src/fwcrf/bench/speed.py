"""Time of a lattice build and of one filter application, beside pydensecrf in the same run.

*Build*: the work of pydensecrf's ``addPairwiseBilateral``, which is features, lattice and one filter of
ones for the normalization. *Complete operator*: our default, which also fits the scale to the image and
finds the exact diagonal, against that same call. *Filter*: one application of the lattice so built,
symmetric; then of the complete operator, which also takes the diagonal out, and of a one-sided blur, which
is all that pydensecrf does. pydensecrf has no call for one filter: it
is the time that a mean-field step takes longer for each further bilateral kernel, which is one filter and
the addition of its result. Four kernels against one, because the difference of two nearly equal times
would be mostly noise.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch

from fwcrf.bench import peer, pictures, report
from fwcrf.bench.report import table
from fwcrf.features import bilateral, pixels
from fwcrf.kernels import Bilateral, Lattice

CHANNELS = 21
KERNELS = 4  # of pydensecrf's larger model
XY, COLOR = 80.0, 13.0
TARGETS = {"build": (2.5, 4.0), "filter": (2.5, 4.5)}

Prepare = Callable[[], Callable[[], object]]
Times = dict[str, dict[str, dict[str, float]]]  # picture, case, statistic

# What is compared: name, our measurement, pydensecrf's.
RATIOS = [
    ("build", "build", "peer build"),
    ("complete operator", "operator", "peer build"),
    ("filter", "filter", "peer filter"),
    ("filter, complete operator", "filter, complete", "peer filter"),
    ("filter, one-sided blur", "one-sided", "peer filter"),
]


def built(image: np.ndarray) -> Lattice:
    """Our lattice without anything that pydensecrf's has not."""
    values, shape = pixels(image)
    lattice = Lattice.uncalibrated(bilateral(values, shape, XY, COLOR))
    lattice.row_sums()
    return lattice


def cases(image: np.ndarray) -> dict[str, Prepare]:
    """By name: a function that prepares a repetition and returns what is to be timed."""
    x = torch.rand(image.shape[0] * image.shape[1], CHANNELS, generator=torch.Generator().manual_seed(0))
    K = Bilateral(XY, COLOR).operator(image).without_self_edges()
    assert isinstance(K, Lattice)
    plain = built(image)
    one_sided = replace(plain, blur="forward")
    ours = {
        "build": lambda: lambda: built(image),
        "operator": lambda: lambda: Bilateral(XY, COLOR).operator(image).without_self_edges(),
        "filter": lambda: lambda: plain(x),
        "filter, complete": lambda: lambda: K(x),
        "one-sided": lambda: lambda: one_sided(x),
    }
    if not peer.dcrf:
        return ours
    energies = peer.unary(image, CHANNELS)
    steps = {count: peer.model(image, energies, count, XY, COLOR) for count in (1, KERNELS)}
    started = {count: (model, *model.startInference()) for count, model in steps.items()}

    def peer_build() -> Callable[[], object]:
        fresh = peer.model(image, energies, 0, XY, COLOR)
        return lambda: fresh.addPairwiseBilateral(sxy=XY, srgb=COLOR, rgbim=image, compat=1)

    def peer_step(count: int) -> Callable[[], object]:
        model, q, first, second = started[count]
        return lambda: model.stepInference(q, first, second)

    theirs = {
        "peer build": peer_build,
        "peer step 1": lambda: peer_step(1),
        "peer step 4": lambda: peer_step(KERNELS),
    }
    # Taken in turns within a round, so that a slow moment of the machine meets both.
    order = ["build", "peer build", "operator", "peer step 1", "filter", "peer step 4", "one-sided"]
    order += ["filter, complete"]
    return {name: (ours | theirs)[name] for name in order}


def measure(images: dict[str, np.ndarray], rounds: int) -> tuple[Times, list[float]]:
    """Minimum and median of each case in milliseconds; and the cores at hand in each round.

    A round goes through all pictures, so that those of one picture are spread over the whole run.
    """
    prepared = {name: cases(image) for name, image in images.items()}
    times: dict[str, dict[str, list[float]]] = {name: {} for name in images}
    cores = []
    for turn in range(rounds + 1):
        cores.append(report.cores_at_hand())
        for name, by_case in prepared.items():
            for case, prepare in by_case.items():
                work = prepare()
                start = perf_counter()
                result = work()
                taken = (perf_counter() - start) * 1000
                del work, result
                if turn:  # the first round fills caches and starts threads
                    times[name].setdefault(case, []).append(taken)
    return {name: _summary(by_case) for name, by_case in times.items()}, cores


def run(rounds: int = 15, threads: tuple[int, ...] = (1, 2)) -> dict[str, object]:
    """Measure, print, and return everything."""
    images = {name: pictures.named(name) for name in pictures.names()}
    before = torch.get_num_threads()
    results: dict[str, Times] = {}
    cores: dict[str, list[float]] = {}
    try:
        for count in threads:
            torch.set_num_threads(count)
            results[str(count)], cores[str(count)] = measure(images, rounds)
            print(f"\n### Milliseconds, least (median) of {rounds} rounds, threads: {count}\n")
            print(_times(results[str(count)]))
            middle, most = statistics.median(cores[str(count)]), max(cores[str(count)])
            print(f"\nCores that a matrix product got meanwhile: median {middle:.2f}, most {most:.2f}")
    finally:
        torch.set_num_threads(before)
    if peer.dcrf:
        print("\n### pydensecrf's time over ours, of minima (of medians)\n")
        print(_ratios(results))
    vertices = {name: built(image).vertices for name, image in images.items()}
    return {"milliseconds": results, "cores at hand": cores, "lattice points": vertices}


def _summary(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    summary = {name: {"min": min(t), "median": statistics.median(t)} for name, t in times.items()}
    if "peer step 4" in times:
        one, four = times["peer step 1"], times["peer step 4"]
        # The least difference would pair a disturbed step with an undisturbed one.
        apart = statistics.median(b - a for a, b in zip(one, four, strict=True))
        further = KERNELS - 1
        summary["peer filter"] = {"min": (min(four) - min(one)) / further, "median": apart / further}
    return summary


def _times(results: Times) -> str:
    columns = list(next(iter(results.values())))
    rows = [
        [name, *(f"{case[c]['min']:.1f} ({case[c]['median']:.1f})" for c in columns)]
        for name, case in results.items()
    ]
    return table(["picture", *columns], rows)


def _ratios(results: dict[str, Times]) -> str:
    names = list(next(iter(results.values())))
    rows = []
    for label, ours, theirs in RATIOS:
        for position, (count, by_picture) in enumerate(results.items()):
            each = {
                key: [case[theirs][key] / case[ours][key] for case in by_picture.values()]
                for key in ("min", "median")
            }
            cells = [f"{a:.2f} ({b:.2f})" for a, b in zip(each["min"], each["median"], strict=True)]
            middle = f"{statistics.median(each['min']):.2f} ({statistics.median(each['median']):.2f})"
            target = f"{TARGETS[label][position]}" if label in TARGETS and position < 2 else ""
            rows.append([label, count, *cells, middle, target])
    return table(["", "threads", *names, "median", "target"], rows)
