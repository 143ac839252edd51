"""Trials of settings on labelled images, scored by the mean IoU of their joint confusion matrix."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from fwcrf.apps.batch.job import Reading, file_identity, recorded_warnings, refine_files
from fwcrf.apps.batch.local import Failure, Pool
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.labels import read_labels
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.parameters import parameters, ranges, with_parameters
from fwcrf.apps.tuning.search import Point, search


@dataclass(frozen=True)
class Trial:
    """Parameters that were tried, and their mean IoU, from 0 to 1."""

    point: Point
    score: float


@dataclass(frozen=True)
class Tuned:
    """Result of ``tune``."""

    settings: Settings  # with the best parameters
    trials: list[Trial]  # in order; the first is the start
    scores_alone: float  # the mean IoU without a CRF
    num_images: int
    failures: list[tuple[Item, str]]  # images that were left out, and the reasons
    warnings: list[str]  # about the images that were used

    @property
    def best(self) -> Trial:
        return max(self.trials, key=lambda trial: trial.score)


def tune(
    items: Sequence[Item],
    settings: Settings = Settings(),  # noqa: B008 - frozen
    reading: Reading = Reading(),  # noqa: B008
    *,
    only: Sequence[str] | None = None,
    num_trials: int = 40,
    seed: int = 0,
    num_workers: int | None = None,
    journal: Path | str | None = None,
    progress: Callable[[Trial], None] = lambda trial: None,
) -> Tuned:
    """Result of a search for better parameters, starting from ``settings``.

    Args:
        items: images with scores and truth. A few are enough to compare settings; measure the accuracy of
            the result on different images.
        only: names of the parameters to change, by default all of ``fwcrf.apps.tuning.parameters``.
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

    job = CountJob(reading)
    with Pool(job, num_workers) as pool:
        cache = _Cache(job, pool, journal)
        counts = cache.counts(replace(settings, num_steps=0), items)
        failures = [
            (item, c.message) for item, c in zip(items, counts, strict=True) if isinstance(c, Failure)
        ]
        bad = {item for item, _ in failures}
        good = [item for item in items if item not in bad]
        if not good:
            raise FileError(f"none of the {len(items)} images can be used; {failures[0][1]}")
        alone = mean_iou([c for c in counts if not isinstance(c, Failure)])
        trials: list[Trial] = []
        rounds = search(start, ranges(start), num_trials=num_trials, seed=seed)
        points = next(rounds)
        while points:
            scores = []
            for point in points:
                scores.append(cache.score(with_parameters(settings, point), good))
                trials.append(Trial(point, scores[-1]))
                progress(trials[-1])
            points = _next(rounds, scores)
    best = max(trials, key=lambda trial: trial.score)
    return Tuned(with_parameters(settings, best.point), trials, alone, len(good), failures, cache.warnings)


@dataclass(frozen=True)
class Counted:
    """A confusion matrix, ``[truth][label]``, and the warnings of its computation."""

    counts: list[list[int]]
    warnings: list[str]


@dataclass(frozen=True)
class CountJob:
    """Function from settings and an item to a confusion matrix."""

    reading: Reading

    def __call__(self, task: tuple[Settings, Item]) -> Counted:
        import torch

        from fwcrf.apps.evaluation import Confusion

        torch.set_num_threads(1)
        settings, item = task
        assert item.truth is not None
        truth = read_labels(item.truth, limit=self.reading.limit).astype(np.int64)
        with recorded_warnings() as messages:
            labels = refine_files(item.image, item.scores, settings, self.reading).labels
        if labels.shape != truth.shape:
            raise FileError(
                f"{item.truth} has shape {truth.shape}, and the labels {labels.shape}; expected the same."
            )
        counted = truth[truth != self.reading.void]
        if counted.size == 0:
            raise FileError(f"{item.truth} has nothing but {self.reading.void}, which means unlabelled.")
        confusion = Confusion(int(max(labels.max(), counted.max())) + 1, self.reading.void)
        confusion.update(torch.from_numpy(labels), torch.from_numpy(truth))
        return Counted(confusion.matrix.tolist(), messages)

    def key(self, task: tuple[Settings, Item]) -> str:
        """Hash of everything that the result depends on: settings, input files and version."""
        from fwcrf import __version__

        settings, item = task
        files = [file_identity(path) for path in (item.image, item.scores, item.truth) if path]
        return settings.fingerprint(version=__version__, reading=asdict(self.reading), files=files)


def mean_iou(counts: Sequence[list[list[int]]]) -> float:
    """Mean IoU of the sum of confusion matrices, over the classes that occur in the truth.

    >>> mean_iou([[[3, 1], [0, 2]], [[4]]])
    0.7708333333333333
    """
    from fwcrf.apps.evaluation import Confusion

    confusion = Confusion(max(len(c) for c in counts))
    for c in counts:
        confusion.matrix[: len(c), : len(c)] += confusion.matrix.new_tensor(c)
    return confusion.mean_iou(confusion.present())


class _Cache:
    """Cache of confusion matrices, in memory and in a file."""

    def __init__(self, job: CountJob, pool: Pool, journal: Path | str | None) -> None:
        self.job, self.pool, self.path = job, pool, None if journal is None else Path(journal)
        self.known: dict[str, list[list[int]]] = dict(_lines(self.path)) if self.path is not None else {}
        self.warnings: list[str] = []

    def counts(self, settings: Settings, items: Sequence[Item]) -> list[list[list[int]] | Failure]:
        tasks = [(settings, item) for item in items]
        keys = [self.job.key(task) for task in tasks]
        missing = [i for i, key in enumerate(keys) if key not in self.known]
        failed: dict[str, Failure] = {}
        for number, answer in self.pool.run([tasks[i] for i in missing]):
            key = keys[missing[number]]
            if isinstance(answer, Failure):
                failed[key] = answer
            else:
                self.known[key] = answer.counts
                self._keep(key, answer.counts)
                if settings.num_steps == 0:
                    # All trials read the same files, so the warnings about them are kept once.
                    self.warnings += answer.warnings
        return [failed.get(key) or self.known[key] for key in keys]

    def score(self, settings: Settings, items: Sequence[Item]) -> float:
        counts = []
        for item, c in zip(items, self.counts(settings, items), strict=True):
            if isinstance(c, Failure):
                raise FileError(f"{item.image}: {c.message}")
            counts.append(c)
        return mean_iou(counts)

    def _keep(self, key: str, counts: list[list[int]]) -> None:
        if self.path is not None:
            whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
            with open(self.path, "ab") as file:
                file.write((b"" if whole else b"\n") + json.dumps([key, counts]).encode() + b"\n")


def _lines(path: Path) -> Iterator[tuple[str, list[list[int]]]]:
    """Keys and confusion matrices of a journal; damaged lines are skipped."""
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                key, counts = json.loads(line)
                mean_iou([counts])
            except (ValueError, TypeError, RuntimeError):
                continue
            yield key, counts


def _next(rounds: Iterator[list[Point]], scores: list[float]) -> list[Point]:
    try:
        return rounds.send(scores)  # type: ignore[attr-defined]
    except StopIteration:
        return []
