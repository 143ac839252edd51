"""Choose the defaults of ``fwcrf fit``, and write the tables of command-line.md.

    FWCRF_DATA=DATA python docs/measure_fitting.py --output FOLDER

Losses, rates and groups of parameters are compared by cross-validation on images of the first half of each
data set (VOC; CamVid's validation images). The best one, and the best for each data set, are then fitted to
these images and measured on images of the second half. Fits are kept: an interrupted run continues.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from measuring.records import record
from measuring.scenes import WELL_REPRESENTED, Scene, camvid, voc
from PIL import Image

from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.manifest import Item, read_manifest
from fwcrf.apps.experiments.judge_fitting import Judge, compared
from fwcrf.apps.experiments.tables import Row
from fwcrf.apps.fitting import Options

WEIGHTS = ("lambda", "weights")
# Beside lambda and the weights; the loss is Lovasz-softmax and the rate 0.05 unless named.
CANDIDATES = {
    "bandwidths": Options(learn=(*WEIGHTS, "bandwidths")),
    "bandwidths, cross-entropy": Options(learn=(*WEIGHTS, "bandwidths"), loss="cross-entropy"),
    "no more, cross-entropy": Options(learn=WEIGHTS, loss="cross-entropy"),
    "weights per label, cross-entropy": Options(learn=(*WEIGHTS, "label-weights"), loss="cross-entropy"),
    "compatibility, cross-entropy": Options(learn=(*WEIGHTS, "compatibility"), loss="cross-entropy"),
    "compatibility": Options(learn=(*WEIGHTS, "compatibility")),
    "compatibility, rate 0.15": Options(learn=(*WEIGHTS, "compatibility"), rate=0.15),
}


def main() -> None:
    reader = argparse.ArgumentParser(description="Choose the defaults of fwcrf fit.")
    reader.add_argument("--output", type=Path, required=True, help="folder for results")
    reader.add_argument("--images", type=int, default=40, help="images of each half, at most")
    given = reader.parse_args()
    both = 2 * given.images
    sets = {
        "VOC": (lambda: voc(-(-223 // both)), WELL_REPRESENTED),
        "CamVid": (lambda: camvid("val", both), None),
    }
    rows: list[Row] = []
    judges: dict[str, Judge] = {}
    halves: dict[str, list[list[Item]]] = {}
    for name, (scenes, classes) in sets.items():
        items = written(given.output / name, scenes())
        halves[name] = [items[: len(items) // 2], items[len(items) // 2 :]]
        judges[name] = Judge(given.output / name, reading=Reading(kind="logits"), classes=classes)
        for row in compared(judges[name], halves[name][0], CANDIDATES):
            print(name, row, flush=True)
            rows.append({"data": name} | row)
    record("fit-choices", rows)
    last: list[Row] = []
    for name, judge in judges.items():
        first, second = halves[name]
        both_sets, own = best(rows), best([row for row in rows if row["data"] == name])
        for chosen, label in {f"{name} alone": own, "both": both_sets}.items():
            gain = judge.held_out(first, second, CANDIDATES[label])
            ends = {"gain": gain.value, "low": gain.low, "high": gain.high}
            last.append(
                {"data": name, "chosen on": chosen, "fit": label, "start": judge.score(second)} | ends
            )
    record("fit-gain", last)


def best(rows: Sequence[Row]) -> str:
    """The candidate with the highest sum of cross-validated gains."""
    return max(
        CANDIDATES, key=lambda label: sum(float(row["gain"] or 0) for row in rows if row["fit"] == label)
    )


def written(folder: Path, scenes: Iterator[Scene]) -> list[Item]:
    """The scenes as files for ``fwcrf fit``."""
    for kind in ("images", "scores", "truth"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    if not (folder / "done").exists():
        for number, scene in enumerate(scenes):
            Image.fromarray(scene.image).save(folder / "images" / f"{number:04d}.png")
            np.save(folder / "scores" / f"{number:04d}.npy", scene.scores.astype(np.float16))
            Image.fromarray(scene.truth.astype(np.uint8)).save(folder / "truth" / f"{number:04d}.png")
        (folder / "done").touch()
    return read_manifest(folder / "images", folder / "scores", truth=folder / "truth")


if __name__ == "__main__":
    main()
