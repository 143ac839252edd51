"""Judge of ``fwcrf tune``: draws of a few images to tune on, and the results on all other images.

    python -m fwcrf.apps.experiments.judge_tuning --data FOLDER -o OUT

All candidates are measured on all images once, into a file in ``OUT`` with which the same command resumes.
The draws then only choose.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from fwcrf.apps.batch.local import Failure, Pool
from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.setup import data_folder
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.choice import choose, mean_iou
from fwcrf.apps.tuning.design import Point, design
from fwcrf.apps.tuning.parameters import (
    bandwidths_of,
    distance,
    landmarks,
    parameters,
    ranges,
    with_parameters,
)
from fwcrf.apps.tuning.table import Areas

# The default, and two more starts: far from the best settings for these images, and near.
STARTS: dict[str, Settings] = {
    "default": Settings(),
    "broad": replace(
        Settings(),
        kernels=[
            {"kind": "spatial", "xy": 3.0, "weight": 1.0},
            {"kind": "bilateral", "xy": 80.0, "color": 13.0, "weight": 1.0},
        ],
    ),
    "sharp": replace(
        Settings(),
        kernels=[
            {"kind": "spatial", "xy": 3.0, "weight": 0.6},
            {"kind": "bilateral", "xy": 50.0, "color": 5.0, "weight": 4.0},
        ],
    ),
}


@dataclass(frozen=True)
class Job:
    """Areas of candidates on an image, of which every ``every``-th pixel of each axis is taken."""

    root: Path
    every: int

    def __call__(self, task: tuple[str, Sequence[Point]]) -> list[Areas]:
        import torch

        import fwcrf
        from fwcrf.apps.tuning.shared import areas, arguments

        torch.set_num_threads(1)
        name, points = task
        picture, void = (
            images.load(self.root, name, self.every),
            images.scored(self.root).classes.ignore_index,
        )
        found = []
        for given in arguments([with_parameters(Settings(), point) for point in points]):
            labels = fwcrf.refine(
                picture.image, picture.logits, from_logits=True, spacing=float(self.every), **given
            )
            found.append(areas(labels, picture.truth.long(), void))
        return found


def candidates(num_trials: int) -> dict[str, list[Point]]:
    """Candidates of ``fwcrf tune`` from each start, in the order of the search, and the other starts."""
    starts = {name: parameters(settings) for name, settings in STARTS.items()}
    return {
        name: design(start, ranges(start), [*landmarks(start), *starts.values()], num_trials=num_trials)
        for name, start in starts.items()
    }


def measure(job: Job, path: Path, names: Sequence[str], points: Sequence[Point], workers: int | None) -> None:
    """Append the missing areas of points on images to a file."""
    known = {(name, values) for name, values, _ in _lines(path)}
    tasks = []
    for _, group in groupby(points, bandwidths_of):
        alike = list(group)
        for name in names:
            missing = [point for point in alike if (name, tuple(point.values())) not in known]
            tasks += [(name, missing)] if missing else []
            known |= {(name, tuple(point.values())) for point in missing}
    with Pool(job, workers) as pool, open(path, "a", encoding="utf-8") as file:
        for index, answer in pool.run(tasks):
            name, measured = tasks[index]
            if isinstance(answer, Failure):
                raise FileError(f"{name}: {answer.message}")
            for point, areas in zip(measured, answer, strict=True):
                # The newline comes first, after a line that an interruption may have cut.
                file.write("\n" + json.dumps([name, list(point.values()), areas]))
            file.flush()


def _lines(path: Path) -> Iterator[tuple[str, tuple[float, ...], Areas]]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            name, values, areas = json.loads(line)
        except ValueError:  # empty, or cut by an interruption
            continue
        yield name, tuple(values), areas


def table(path: Path, names: Sequence[str], points: Sequence[Point], num_labels: int) -> np.ndarray:
    """Areas ``(points, images, 3, labels)`` of a file."""
    stored = {(name, values): areas for name, values, areas in _lines(path)}
    found = np.zeros((len(points), len(names), 3, num_labels))
    for p, point in enumerate(points):
        for i, name in enumerate(names):
            areas = stored[name, tuple(point.values())]
            found[p, i, :, : len(areas[0])] = areas
    return found


def judge(
    areas: np.ndarray, points: Sequence[Point], num_images: int, seeds: Sequence[int]
) -> list[dict[str, float]]:
    """A row per draw: the candidate chosen on ``num_images``, and mean IoU in percent on all other images."""
    distances = np.array([distance(point, points[0]) for point in points])
    rows = []
    for seed in seeds:
        drawn = random.Random(seed).sample(range(areas.shape[1]), num_images)
        choice = choose(areas[:, drawn], distances)
        rest = np.delete(areas[[0, choice.index]], drawn, 1).sum(1)
        nine = 100 * mean_iou(rest[..., list(images.NINE)] if rest.shape[-1] > max(images.NINE) else rest)
        every = 100 * mean_iou(rest)
        rows.append(
            {
                "seed": seed, "candidate": choice.index, "start": nine[0], "gain": nine[1] - nine[0],
                "gain of all classes": every[1] - every[0],
                "reported": 100 * (choice.miou - choice.miou_start) if choice.index else 0.0,
            }
        )  # fmt: skip
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Judge fwcrf tune on images with a network's logits.")
    parser.add_argument("--data", type=Path, help="contains voc2012 (default: FWCRF_DATA)")
    parser.add_argument("--output", "-o", type=Path, required=True, help="folder for measurements")
    parser.add_argument("--trials", type=int, default=64, help="candidates from each start")
    parser.add_argument("--images", type=int, default=12, help="images of a draw")
    parser.add_argument("--draws", type=int, default=20, help="draws")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--every", type=int, default=3, help="take every so many pixels of each axis")
    parser.add_argument("--workers", "-j", type=int, help="processes (default: one per processor)")
    given = parser.parse_args(arguments)
    root = data_folder(given.data) / "voc2012"
    scored = images.scored(root)
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / f"areas-{given.every}.jsonl"
    every = candidates(given.trials)
    points = [point for one in every.values() for point in one]
    measure(Job(root, given.every), path, scored.names, points, given.workers)
    for name, own in every.items():
        areas = table(path, scored.names, own, len(scored.classes))
        rows = judge(areas, own, given.images, range(given.seed, given.seed + given.draws))
        gains = np.array([row["gain"] for row in rows])
        changed = [row for row in rows if row["candidate"]]
        everywhere = [row["gain of all classes"] for row in rows]
        print(
            f"{name}: mIoU9 {rows[0]['start']:.2f}; {len(changed)} of {len(rows)} draws of {given.images} "
            f"images change the start; gain {gains.mean():+.2f} on average, {gains.min():+.2f} at worst, "
            f"{gains.max():+.2f} at best; over all classes {np.mean(everywhere):+.2f} on average, "
            f"{min(everywhere):+.2f} at worst"
        )


if __name__ == "__main__":
    main()
