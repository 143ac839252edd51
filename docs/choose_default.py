"""Choose the default of ``refine`` by cross-validation over three data sets; write tables of presets.md.

    FWCRF_DATA=DATA python docs/choose_default.py --keep FOLDER

The candidates are measured on every third image of VOC, on 40 validation images of CamVid and on MSRC. The
score of a candidate is the share of the network's errors that it removes, gain / (100 - network), as the mean
over six measures and then over the three data sets, so that no data set and no measure decides alone. A
candidate is admitted if it loses nothing small and nothing thin on average over the data sets. For each fifth
of the images of each data set, the best admitted candidate on the other images is measured on this fifth.
``--keep`` stores counts, with which the command resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from measuring.candidates import candidate
from measuring.counts import MEASURES, SCORES_ALONE, Counts, kept
from measuring.pages import write
from measuring.scenes import TASKS, camvid, voc

SETS = {
    "voc": replace(TASKS["voc"], scenes=partial(voc, 3)),
    "camvid": replace(TASKS["camvid"], scenes=partial(camvid, "val", 40)),
    "msrc": TASKS["msrc"],
}
FOLDS, DRAWS = 5, 200
SHOWN = ("xy", "color", "weight", "balance", "near", "steps", "solver", "temperature")
FORMER = {"xy": 80, "color": 6, "weight": 2.4, "balance": 0.3, "near": 0.3, "steps": 5, "solver": "l2fw",
          "temperature": 1}  # fmt: skip


def candidates() -> dict[str, dict]:
    """Candidates by name: values around the former default, alone and together with more balance."""
    changes: list[dict] = [
        {"weight": weight, "balance": balance} for weight in (1.7, 2.4, 3.4) for balance in (0.3, 0.45)
    ]
    changes += [
        {"xy": 50, "color": color, "weight": weight, "balance": balance}
        for color in (5, 8)
        for weight, balance in ((1.7, 0.3), (2.4, 0.3), (2.4, 0.45))
    ]
    changes += [
        {"balance": 0}, {"color": 13, "balance": 0.45}, {"near": 0}, {"near": 1}, {"steps": 3}, {"steps": 10},
        {"temperature": 1.5}, {"solver": "mf"}, {"solver": "anneal-fw"},
    ]  # fmt: skip
    every = [{**FORMER, **change} for change in changes]
    return {named(one): one for one in every}


def named(values: Mapping) -> str:
    """A row of a table: all values."""
    return " | ".join(f"{values[name]:g}" if name != "solver" else values[name] for name in SHOWN)


def shares(counts: Mapping[str, Mapping[str, Counts]], images: Mapping[str, np.ndarray]) -> np.ndarray:
    """Gains over the scores alone ``(sets, candidates, measures)``, as shares of the network's errors."""
    found = []
    for name, task in SETS.items():
        values = np.stack([one.of(images[name]).measures(task) for one in counts[name].values()])
        found.append((values[1:] - values[0]) / (100 - values[0]))
    return np.stack(found)


def best(gains: np.ndarray) -> int:
    """The candidate with the highest score that loses nothing small or thin, on average over sets."""
    worst = gains[..., -2:].mean(0).min(-1)
    score = gains.mean((0, 2))
    admitted = worst >= 0 if (worst >= 0).any() else worst == worst.max()
    return int(np.where(admitted, score, -np.inf).argmax())


def folded(counts: Mapping[str, Mapping[str, Counts]], names: Sequence[str]) -> str:
    """A table of the choice without each fifth of the images, measured on this fifth."""
    random = np.random.default_rng(0)
    order = {name: random.permutation(len(each[SCORES_ALONE])) for name, each in counts.items()}
    lines = [f"| {' | '.join(('images', *SHOWN, *SETS, 'small', 'thin'))} |"]
    lines.append("|---|" + "---:|" * (len(SHOWN) + len(SETS) + 2))
    for fold in range(FOLDS):
        rest = {name: np.delete(one, np.s_[fold::FOLDS]) for name, one in order.items()}
        held = {name: one[fold::FOLDS] for name, one in order.items()}
        chosen = best(shares(counts, rest))
        gains = shares(counts, held)[:, chosen]
        cells = [*gains.mean(1), *gains[:, -2:].mean(0)]
        lines.append(
            f"| fifth {fold + 1} | {names[chosen]} | {' | '.join(f'{100 * v:+.1f}' for v in cells)} |"
        )
    return "\n".join(lines)


def compared(counts: Mapping[str, Mapping[str, Counts]], names: Sequence[str], shown: int = 12) -> str:
    """A table of the best candidates and of the former default, on all images."""
    every = {name: np.arange(len(each[SCORES_ALONE])) for name, each in counts.items()}
    gains = shares(counts, every)
    random = np.random.default_rng(0)
    drawn = [
        shares(counts, {name: random.choice(one, len(one)) for name, one in every.items()})
        for _ in range(DRAWS)
    ]
    scores = np.stack([one.mean((0, 2)) for one in drawn])
    chosen, score = best(gains), gains.mean((0, 2))
    lines = [f"| {' | '.join((*SHOWN, 'score', 'to the best', *SETS, 'least small, thin'))} |"]
    lines.append("|" + "---:|" * (len(SHOWN) + len(SETS) + 3))
    losing = gains[..., -2:].mean(0).min(-1) < 0
    listed = [k for k in np.argsort(-score, kind="stable") if k == chosen or not losing[k]][:shown]
    former = names.index(named(FORMER))
    for k in [*listed, *({former} - {*listed})]:
        apart = scores[:, k] - scores[:, chosen]
        difference = (
            f"{100 * (score[k] - score[chosen]):+.2f} ± {100 * apart.std():.2f}" if k != chosen else ""
        )
        cells = [f"{100 * v:+.1f}" for v in (score[k], *gains[:, k].mean(1), gains[:, k, -2:].min())]
        bold = "**" if k == former else ""
        lines.append(f"| {names[k]} | {bold}{cells[0]}{bold} | {difference} | {' | '.join(cells[1:])} |")
    return "\n".join(lines)


def main() -> None:
    reader = argparse.ArgumentParser(
        description="Choose the default by cross-validation over three data sets."
    )
    reader.add_argument("--keep", type=Path, help="folder for counts, with which the command resumes")
    given = reader.parse_args()
    settings = {name: candidate(**values) for name, values in candidates().items()}
    counts = {
        name: kept(given.keep / f"{name}.npz" if given.keep else None, task, settings)
        for name, task in reversed(SETS.items())
    }
    counts = {name: counts[name] for name in SETS}
    for name, task in SETS.items():
        print(name, MEASURES)
        for setting, each in counts[name].items():
            print(f"{setting:45}", each.measures(task).round(2))
    write("choice", folded(counts, [*settings]), "presets.md")
    write("candidates", compared(counts, [*settings]), "presets.md")


if __name__ == "__main__":
    main()
