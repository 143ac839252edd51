"""Compare ways to train a CRF, with or without the network's head, and write the table of experiments.md.

    FWCRF_DATA=DATA python docs/measure_learning.py --output FOLDER [--data-set voc]

Training images to learn from, images for choices to measure on. The test images judge the best choice only,
which trains with three seeds. An interrupted run continues. A folder of ``fwcrf experiment joint`` has the
features already.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from measuring.records import record
from measuring.scenes import DATA

from fwcrf.apps.experiments import Setup, benchmark
from fwcrf.apps.experiments.benchmark import TEST
from fwcrf.apps.experiments.joint_runs import Runs
from fwcrf.apps.experiments.learning_choices import CHOICES, CNN, START, UPDATES, Choice, Trials, tuned_potts
from fwcrf.apps.experiments.tables import Row, as_csv

SEEDS = (0, 1, 2)


def main() -> None:
    reader = argparse.ArgumentParser(description="Compare ways to train a CRF.")
    reader.add_argument("--output", type=Path, required=True, help="folder for results")
    reader.add_argument("--data-set", choices=["camvid", "voc"], default="camvid")
    reader.add_argument("--updates", type=int, default=UPDATES, help="training steps")
    reader.add_argument("--workers", type=int, default=None)
    reader.add_argument("--done", action="store_true", help="write the table of the trials that are kept")
    given = reader.parse_args()
    setup = Setup(
        DATA, given.output, num_workers=given.workers, progress=lambda line=None, *_: print(line, flush=True)
    )
    runs = Runs(setup, getattr(benchmark, given.data_set))
    trials = Trials(runs, tuned_potts(runs), given.updates)
    choices = [choice for choice in CHOICES if not given.done or "counts" in trials.kept(choice)]
    trials.complete(choices)
    rows = trials.rows(choices)
    (given.output / f"choices-{given.data_set}.csv").write_bytes(as_csv(rows))
    if given.data_set == "camvid":
        record("choices-camvid", rows)
        record("chosen-camvid", on_test_images(trials, best(rows, runs.benchmark.measure)))


def best(rows: Sequence[Row], measure: str) -> Choice:
    """The choice with the highest mean IoU on the images for choices."""
    label = max(rows, key=lambda row: float(row[measure] or 0))["learned"]
    return next(choice for choice in CHOICES if choice.label == label)


def on_test_images(trials: Trials, chosen: Choice) -> list[Row]:
    """Rows of the network, the tuned Potts CRF, and the chosen way with each seed, on the test images."""
    rows: list[Row] = []
    for seed in SEEDS:
        judging = replace(trials, split=TEST, seed=seed)
        choices = [CNN, START, chosen] if seed == SEEDS[0] else [START, chosen]
        judging.complete(choices)
        found = judging.rows(choices)
        rows += [{"learned": row["learned"], "seed": seed} | row for row in found[-1 if seed else 0 :]]
    return rows


if __name__ == "__main__":
    main()
