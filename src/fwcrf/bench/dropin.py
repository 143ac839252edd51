"""The same program on pydensecrf and on its drop-in: model, two kernels, ten steps, result as an array."""

from __future__ import annotations

import statistics
from time import perf_counter
from types import ModuleType

import numpy as np
import torch

from fwcrf.bench import peer, pictures, report
from fwcrf.bench.report import table
from fwcrf.pydensecrf import densecrf

STEPS = 10
LABELS = (21, 2)


def program(dcrf: ModuleType, image: np.ndarray, unary: np.ndarray) -> np.ndarray:
    """Marginals with the settings of pydensecrf's own example."""
    height, width = image.shape[:2]
    crf = dcrf.DenseCRF2D(width, height, len(unary))
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
    return np.array(crf.inference(STEPS))


def measure(images: dict[str, np.ndarray], labels: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds by picture and library, which take turns."""
    libraries = {"fwcrf": densecrf, **({"pydensecrf": peer.dcrf} if peer.dcrf else {})}
    times: dict[str, dict[str, list[float]]] = {name: {lib: [] for lib in libraries} for name in images}
    for turn in range(rounds + 1):
        for name, image in images.items():
            unary = peer.unary(image, labels)
            for lib, dcrf in libraries.items():
                start = perf_counter()
                program(dcrf, image, unary)
                if turn:  # the first round fills caches and starts threads
                    times[name][lib].append((perf_counter() - start) * 1000)
    return times


def run(rounds: int = 5, threads: tuple[int, ...] = (1, 2)) -> dict[str, object]:
    """Measure, print, and return everything."""
    images = {name: pictures.named(name) for name in pictures.names()[:3]}
    before = torch.get_num_threads()
    results: dict[str, dict[str, dict[str, dict[str, list[float]]]]] = {}
    rows = []
    try:
        for labels in LABELS:
            for count in threads:
                torch.set_num_threads(count)
                times = measure(images, labels, rounds)
                results.setdefault(str(labels), {})[str(count)] = times
                rows += [[f"{labels} labels", count, name, *_cells(each)] for name, each in times.items()]
    finally:
        torch.set_num_threads(before)
    size = f"{pictures.WIDTH} x {pictures.HEIGHT}"
    print(f"\n### {size}, {STEPS} steps: milliseconds, least (median) of {rounds} rounds, and their ratio\n")
    libraries = ["fwcrf", *(["pydensecrf", "ratio"] if peer.dcrf else [])]
    print(table(["", "threads", "picture", *libraries], rows))
    return {"milliseconds": results, "cores at hand": report.cores_at_hand()}


def _cells(times: dict[str, list[float]]) -> list[str]:
    cells = [f"{min(t):.0f} ({statistics.median(t):.0f})" for t in times.values()]
    if len(times) == 2:
        ours, theirs = times.values()
        middle = statistics.median(theirs) / statistics.median(ours)
        cells.append(f"{min(theirs) / min(ours):.2f} ({middle:.2f})")
    return cells
