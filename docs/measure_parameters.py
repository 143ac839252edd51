"""Measure parameters and remedies on a real network's scores, and write the tables of two pages.

    FWCRF_DATA=DATA python docs/measure_parameters.py sweeps      # one parameter at a time: parameters.md
    FWCRF_DATA=DATA python docs/measure_parameters.py remedies    # the remedies of worse.md
    FWCRF_DATA=DATA python docs/measure_parameters.py trivial     # energies of one label: parameters.md

Gains are over the scores alone, in points, on every fourth VOC image (remedies: every eighth).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from measuring.candidates import BILATERAL, SPATIAL, candidate
from measuring.counts import MEASURES, SCORES_ALONE, run
from measuring.pages import write
from measuring.scenes import TASKS, Scene, Task, voc

import fwcrf
from fwcrf.kernels import Bilateral, Spatial

VOC = TASKS["voc"]
WEIGHTS = (0.6, 1.2, 2.4, 5, 10, 20)
# Values of one parameter; every other parameter is the default's.
SWEEPS: dict[str, dict[str, dict[str, Any]]] = {
    "weight": {f"{w:g}": {"weight": w} for w in WEIGHTS},
    "weight at 80 px / 13 levels": {f"{w:g}": {"weight": w, "color": 13} for w in WEIGHTS},
    "color": {f"{c}": {"color": c} for c in (3, 6, 13, 25)},
    "xy": {f"{xy}": {"xy": xy} for xy in (20, 50, 80, 160)},
    "spatial weight": {f"{w:g}": {"near": w} for w in (0, 0.3, 1, 3)},
    "balance": {f"{b:g}": {"balance": b} for b in (0, 0.15, 0.3, 0.6)},
    "num_steps": {f"{k}": {"steps": k} for k in (1, 2, 3, 5, 10, 20)},
}
NOISE = 20.0  # standard deviation in grey levels of the noise in noisy photographs


def rows(task: Task, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """A row of gains for each setting."""
    found = run(task, settings)
    alone = found[SCORES_ALONE].measures(task)
    return {
        name: f"| {name} | {' | '.join(f'{gain:+.1f}' for gain in found[name].measures(task) - alone)} |"
        for name in settings
    }


def head(name: str) -> str:
    return f"| {name} | {' | '.join(MEASURES)} |\n|---|{'---:|' * len(MEASURES)}"


def sweeps() -> None:
    """Tables of parameters.md, one for each parameter."""
    every = {f"{n}: {v}": candidate(**given) for n, each in SWEEPS.items() for v, given in each.items()}
    found = rows(replace(VOC, scenes=partial(voc, 4)), every)
    for name, each in SWEEPS.items():
        lines = [head(name), *(found[f"{name}: {v}"].replace(f"{name}: ", "", 1) for v in each)]
        write(name, "\n".join(lines), "parameters.md")


def thin_labels_weaker(factor: float) -> dict[str, Any]:
    """The default with a smaller weight of the bilateral kernel for every label but the background."""
    weights = [BILATERAL["weight"], *[factor * BILATERAL["weight"]] * (VOC.num_labels - 1)]
    kernels = Spatial(**_plain(SPATIAL)), Bilateral(**{**_plain(BILATERAL), "weight": weights})
    return {**candidate(), "kernels": kernels}


def _plain(kernel: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kernel.items() if name != "kind"}


def noisy() -> Iterator[Scene]:
    """Photographs with noise in every channel, and the scores of the clean photographs."""
    random = np.random.default_rng(0)
    for scene in voc(8):
        image = scene.image + random.normal(0, NOISE, scene.image.shape)
        yield replace(scene, image=image.clip(0, 255).astype(np.uint8))


def remedies() -> None:
    """Tables of worse.md."""
    settings = {
        "default": candidate(),
        "logits divided by 2": candidate(temperature=2),
        "twice the bilateral weight": candidate(weight=2 * BILATERAL["weight"]),
        "without `Spatial`": candidate(near=0),
        "`color` 3": candidate(color=3),
        "`xy` 20": candidate(xy=20),
        "`balance` 0.6": candidate(balance=0.6),
        "a fifth of the weight for things": thin_labels_weaker(0.2),
    }
    found = rows(replace(VOC, scenes=partial(voc, 8)), settings)
    write("remedies", "\n".join([head("default with"), *found.values()]), "worse.md")
    settings = {f"`color` {color}": candidate(color=color) for color in (6, 13, 25, 40)}
    settings["spatial weight 3"] = candidate(near=3)
    found = rows(replace(VOC, scenes=noisy), settings)
    write("noise", "\n".join([head(f"noise of {NOISE:g} levels"), *found.values()]), "worse.md")


def trivial() -> None:
    """Table of parameters.md: energies of all-background and of long annealing, with strong kernels.

    Only images are annealed where all-background has less energy than the network's labels.
    """
    lines = ["| image | labels of the scores | annealed, 100 steps | background only | difference |"]
    lines.append("|---:|---:|---:|---:|---:|")
    kernels = [Spatial(3, weight=3.0), Bilateral(80, 13, weight=10.0)]
    crf = fwcrf.DenseCRF(VOC.num_labels, kernels=kernels)
    solver = fwcrf.solvers.get("anneal-fw", steps=100)
    count = annealed_above = 0
    for scene in voc(6):
        count += 1
        image, logits = (torch.from_numpy(one).movedim(-1, 0) for one in (scene.image, scene.scores))
        logits = logits.log_softmax(0)
        network = logits.argmax(0).flatten()
        with torch.no_grad():
            energy = crf.energy(image, logits)
            alone, background = (energy.of_labels(x).item() for x in (network, torch.zeros_like(network)))
            if background >= alone or not network.any():
                continue
            annealed = crf.solve(image, logits, solver=solver, num_steps=100).energy.item()
        annealed_above += annealed > 1.001 * background
        share = 100 * (background - annealed) / annealed
        lines.append(f"| {count} | {alone:.0f} | {annealed:.0f} | {background:.0f} | {share:+.1f} % |")
    text = (
        f"Of {count} images, background only has less energy than the network's labels, which have things, "
        f"on {len(lines) - 2}, and less than the annealed labels on {annealed_above}.\n\n"
    )
    write("trivial", text + "\n".join(lines), "parameters.md")


def main() -> None:
    parts = {"sweeps": sweeps, "remedies": remedies, "trivial": trivial}
    reader = argparse.ArgumentParser(description="Measure parameters and remedies on real scores.")
    reader.add_argument("part", choices=parts)
    parts[reader.parse_args().part]()


if __name__ == "__main__":
    main()
