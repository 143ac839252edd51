"""Judge ``fwcrf tune`` from the default, and write the table of parameters.md.

    FWCRF_DATA=DATA python docs/measure_tuning.py --keep FOLDER

Draws of VOC images to tune on, and the mean IoU of nine classes on all other images. ``--keep`` is the folder
of ``fwcrf.apps.experiments.judge_tuning``: all candidates are measured on all images once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from measuring.pages import write
from measuring.scenes import DATA

from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.judge_tuning import Job, candidates, judge, measure, table

TRIALS, EVERY, DRAWS = 64, 3, 20
FIRST_SEEDS = (0, 1000)


def main() -> None:
    reader = argparse.ArgumentParser(description="Judge fwcrf tune from the default.")
    reader.add_argument("--keep", type=Path, required=True, help="folder for measurements")
    reader.add_argument("--images", type=int, nargs="*", default=[12, 20, 40], help="images of a draw")
    given = reader.parse_args()
    given.keep.mkdir(parents=True, exist_ok=True)
    path, root = given.keep / f"areas-{EVERY}.jsonl", DATA / "voc2012"
    scored, points = images.scored(root), candidates(TRIALS)["default"]
    measure(Job(root, EVERY), path, scored.names, points, 1)
    areas = table(path, scored.names, points, len(scored.classes))
    lines = [
        "| images | seeds | draws that change the default | their reported gain | mean gain | worst | best |"
    ]
    lines.append("|---:|---|---:|---:|---:|---:|---:|")
    for count in given.images:
        for first in FIRST_SEEDS:
            rows = judge(areas, points, count, range(first, first + DRAWS))
            gains = np.array([row["gain"] for row in rows])
            told = [row["reported"] for row in rows if row["candidate"]]
            lines.append(
                f"| {count} | {first} to {first + DRAWS - 1} | {len(told)} of {DRAWS} | "
                f"{np.mean(told) if told else 0:+.2f} | {gains.mean():+.2f} | {gains.min():+.2f} | "
                f"{gains.max():+.2f} |"
            )
            write("tuning", "\n".join(lines), "parameters.md")


if __name__ == "__main__":
    main()
