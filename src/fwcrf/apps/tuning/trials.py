"""Search of settings on labelled images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.local import Pool
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.choice import Choice, choose, mean_iou, scores
from fwcrf.apps.tuning.design import Point, design
from fwcrf.apps.tuning.parameters import (
    at_limits,
    bandwidths_of,
    distance,
    landmarks,
    parameters,
    ranges,
    with_parameters,
)
from fwcrf.apps.tuning.table import AreasJob, Table


@dataclass(frozen=True)
class Trial:
    """Parameters that were tried, and figures over all images, which the choice has seen."""

    point: Point
    score: float  # mean IoU of all images together, from 0 to 1
    gains: tuple[float, ...]  # of each image over the start, see choice.scores


@dataclass(frozen=True)
class Tuned:
    """Result of ``tune``."""

    settings: Settings  # with the chosen parameters
    trials: list[Trial]  # in order; the first is the start
    choice: Choice
    limits: list[str]  # parameters that were chosen at a limit of the search
    scores_alone: float  # the mean IoU without a CRF
    items: list[Item]  # that were used
    failures: list[tuple[Item, str]]  # images that were left out, and the reasons
    warnings: list[tuple[str, str]]  # files of scores that were used, and warnings about them

    @property
    def best(self) -> Trial:
        """The trial of ``settings``."""
        return self.trials[self.choice.index]

    @property
    def num_images(self) -> int:
        return len(self.items)


def tune(
    items: Sequence[Item],
    settings: Settings = Settings(),  # noqa: B008 - frozen
    reading: Reading = Reading(),  # noqa: B008
    *,
    only: Sequence[str] | None = None,
    num_trials: int = 64,
    seed: int = 0,
    num_workers: int | None = None,
    journal: Path | str | None = None,
    progress: Callable[[Trial], None] = lambda trial: None,
) -> Tuned:
    """Result of a search for better parameters than the start, ``settings``.

    Args:
        items: images with scores and truth, ``choice.FEWEST`` or more for any other result than the start.
        only: names of the parameters to change, by default all of ``fwcrf.apps.tuning.parameters``.
        seed: of the candidates; the choice among them has no randomness.
        journal: a file for the measurements, with which the same call resumes after an interruption.
        progress: called after each trial.
    """
    start = parameters(settings)
    for name in only or ():
        if name not in start:
            raise ValueError(f"there is no parameter {name!r} to tune; expected any of {', '.join(start)}.")
    start = {name: value for name, value in start.items() if only is None or name in only}
    without = [item for item in items if item.truth is None]
    if without or not items:
        which = f"{without[0].image} has none" if without else "there are no images"
        raise ValueError(f"tuning needs images with true labels, and {which}.")

    points = design(start, ranges(start), landmarks(start), num_trials=num_trials, seed=seed)
    candidates = [with_parameters(settings, point) for point in points]
    groups = [[*group] for _, group in groupby(range(1, len(points)), lambda i: bandwidths_of(points[i]))]
    alone = replace(settings, num_steps=0)
    with Pool(AreasJob(reading), num_workers) as pool:
        table = Table(reading, pool, journal)
        failures = table.measure(items, [[alone, candidates[0]]])
        used = [item for item in items if item not in failures]
        if not used:
            item, message = next(iter(failures.items()))
            raise FileError(f"none of the {len(items)} images can be used; {item.image}: {message}")

        def trial(index: int) -> Trial:
            first, tried = table.areas([candidates[0], candidates[index]], used)
            gains = (scores(tried) - scores(first)).tolist()
            return Trial(points[index], float(mean_iou(tried.sum(0))), tuple(gains))

        progress(trial(0))
        later = table.measure(
            used,
            [[candidates[i] for i in group] for group in groups],
            lambda number: [progress(trial(i)) for i in groups[number]],
        )
    for item, message in later.items():
        raise FileError(f"{item.image}: {message}")
    choice = choose(table.areas(candidates, used), np.array([distance(p, start) for p in points]))
    return Tuned(
        candidates[choice.index],
        [trial(i) for i in range(len(points))],
        choice,
        at_limits(points[choice.index], ranges(start)) if choice.index else [],
        float(mean_iou(table.areas([alone], used)[0].sum(0))),
        used,
        list(failures.items()),
        table.warnings,
    )
