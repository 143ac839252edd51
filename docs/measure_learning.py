"""Compare ways to train a CRF, with or without the network's head, and write the table of experiments.md.

    FWCRF_DATA=DATA python docs/measure_learning.py --output FOLDER [--data-set voc]

Training images to learn from, images for choices to measure on. The test images judge the best choice and the
defaults of ``fwcrf train`` only, which train with three seeds. An interrupted run continues. A folder of
``fwcrf experiment joint`` has the features already.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from measuring.records import record, recorded
from measuring.scenes import DATA

from fwcrf.apps.experiments import Setup, benchmark
from fwcrf.apps.experiments.benchmark import TEST
from fwcrf.apps.experiments.joint_runs import Runs
from fwcrf.apps.experiments.learning_choices import CHOICES, CNN, START, UPDATES, Choice, Trials, tuned_potts
from fwcrf.apps.experiments.tables import Row, as_csv

SEEDS = (0, 1, 2)
# The defaults of ``fwcrf train``, with the network frozen and with its head.
DEFAULTS = ("weights per label, temperature", "head, weights per label, temperature")


def main() -> None:
    reader = argparse.ArgumentParser(description="Compare ways to train a CRF.")
    reader.add_argument("--output", type=Path, required=True, help="folder for results")
    reader.add_argument("--data-set", choices=["camvid", "voc"], default="camvid")
    reader.add_argument("--updates", type=int, default=UPDATES, help="training steps")
    reader.add_argument("--workers", type=int, default=None)
    reader.add_argument("--done", action="store_true", help="write the table of the trials that are kept")
    reader.add_argument(
        "--judge", action="store_true", help="only judge on the test images, by the recorded table of choices"
    )
    given = reader.parse_args()
    if given.judge and given.data_set != "camvid":
        reader.error("only camvid has test images")
    setup = Setup(
        DATA, given.output, num_workers=given.workers, progress=lambda line=None, *_: print(line, flush=True)
    )
    runs = Runs(setup, getattr(benchmark, given.data_set))
    trials = Trials(runs, tuned_potts(runs), given.updates)
    if given.judge:
        judge(trials, recorded("choices-camvid"))
        return
    choices = [choice for choice in CHOICES if not given.done or "counts" in trials.kept(choice)]
    trials.complete(choices)
    rows = trials.rows(choices)
    (given.output / f"choices-{given.data_set}.csv").write_bytes(as_csv(rows))
    if given.data_set == "camvid":
        record("choices-camvid", rows)
        judge(trials, rows)


def judge(trials: Trials, rows: Sequence[Row]) -> None:
    """Judge the best of the choices and the defaults of ``fwcrf train`` on the test images of CamVid."""
    judged = dict.fromkeys([best(rows, trials.runs.benchmark.measure), *map(named, DEFAULTS)])
    record("chosen-camvid", on_test_images(trials, list(judged)))


def best(rows: Sequence[Row], measure: str) -> Choice:
    """The choice with the highest mean IoU on the images for choices."""
    return named(str(max(rows, key=lambda row: float(row[measure] or 0))["learned"]))


def named(label: str) -> Choice:
    return next(choice for choice in CHOICES if choice.label == label)


def on_test_images(trials: Trials, judged: Sequence[Choice]) -> list[Row]:
    """Rows of the network, the tuned Potts CRF, and each judged way with each seed, on the test images."""
    untrained = [CNN, START]
    first = replace(trials, split=TEST, seed=SEEDS[0])
    first.complete(untrained)
    rows = [{"learned": row["learned"], "seed": SEEDS[0]} | row for row in first.rows(untrained)]
    for choice in judged:
        for seed in SEEDS:
            judging = replace(trials, split=TEST, seed=seed)
            judging.complete([START, choice])
            rows.append({"learned": choice.label, "seed": seed} | judging.rows([choice])[0])
    return rows


if __name__ == "__main__":
    main()
