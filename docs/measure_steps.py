"""Measure time and energy against the number of steps of l2fw; write the table of performance.md.

    FWCRF_DATA=DATA python docs/measure_steps.py

The first six of the random photographs of ``fwcrf bench photographs``, a network's scores, one thread,
processor time, least of three. Time is that of the steps, without set-up. *Left* is the rest of the way from
the energy of the network's labels to the lowest energy found, also by 30 steps of anneal-fw.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import process_time

import torch
from measuring.records import record

import fwcrf
from fwcrf import pairwise
from fwcrf.apps.bench import photographs, pictures
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.kernels import Kernel
from fwcrf.solvers import get, minimize

STEPS, UNIT, LONG = (1, 2, 3, 5, 10, 20, 50), 5, 30
PRESETS, COUNT, ROUNDS = ("paper", "default"), 6, 3


def measured(name: str, kernels: Sequence[Kernel]) -> dict[int, tuple[float, float]]:
    """Time of the steps over that of ``UNIT`` steps, and the share of the way that is left, in percent."""
    width, height = pictures.size(name)
    image = torch.from_numpy(pictures.named(name, width, height)).permute(2, 0, 1)
    logits = torch.from_numpy(pictures.network_scores(name, width, height)).flatten(1)
    unary = unary_from_logits(logits.T.contiguous())
    E = Energy(pairwise.of_image(kernels, image.contiguous(), len(logits)), unary)
    times, energies = {}, {}
    for steps in STEPS:
        taken = []
        for _ in range(ROUNDS):
            start = process_time()
            found = minimize(E, "l2fw", num_steps=steps)
            taken.append(process_time() - start)
        times[steps], energies[steps] = min(taken), float(found.energy)
    annealed = float(minimize(E, get("anneal-fw", steps=LONG), num_steps=LONG).energy)
    first, least = float(E.of_labels(unary.argmin(-1))), min(annealed, *energies.values())
    left = {k: 100 * (energy - least) / (first - least) for k, energy in energies.items()}
    return {k: (times[k] / times[UNIT], left[k]) for k in STEPS}


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for preset in PRESETS:
        kernels = fwcrf.presets.get(preset).arguments()["kernels"]
        names = pictures.at_random(photographs.COUNT, photographs.SEED)[:COUNT]
        found = [measured(name, kernels) for name in names]
        for steps in STEPS:
            times, left = zip(*(one[steps] for one in found), strict=True)
            rows.append({
                "kernels of": preset, "steps": steps, f"time over {UNIT} steps": statistics.median(times),
                "left, median, %": statistics.median(left), "left, most, %": max(left),
            })  # fmt: skip
    record("steps", rows)


if __name__ == "__main__":
    main()
