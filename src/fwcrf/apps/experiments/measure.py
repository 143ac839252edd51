"""Runs over a set of images, in several processes. Each run of an image is computed once and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fwcrf import __version__
from fwcrf.apps.batch.local import Failure, Pool, attempt, processors
from fwcrf.apps.batch.lock import exclusive
from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.potts import Potts
from fwcrf.apps.experiments.runs import Evaluation, Evaluations, Evaluator, Run, carry_out
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import remove_leftovers
from fwcrf.apps.files.digest import content_identity

Measured = dict[Run, list[Evaluations]]  # an entry per image


@dataclass(frozen=True)
class Job:
    """Compute the missing runs of an image, with kernels built once. Returns the number of runs computed."""

    root: Path
    folder: Path
    every: int

    def __call__(self, task: tuple[str, list[Run]]) -> int:
        name, runs = task
        kept = self.kept(name)
        picture = images.load(self.root, name, self.every)
        evaluators: dict[Potts, Evaluator] = {}
        done = 0
        for run in runs:
            if is_missing(run, kept):
                found = carry_out(run, self._evaluator(run.model, evaluators, picture))
                # Stored evaluations take precedence.
                kept[run.path] = {str(k): each for k, each in found.items()} | kept.get(run.path, {})
                done += 1
        return done

    def _evaluator(self, model: Potts, known: dict[Potts, Evaluator], picture: images.Picture) -> Evaluator:
        if model not in known:
            alike = [each.problem for other, each in known.items() if other.kernels == model.kernels]
            problem = alike[0].weighted(model.weight) if alike else model.problem(picture, self.every)
            known[model] = Evaluator(problem, picture.truth, images.scored(self.root).classes.ignore_index)
        return known[model]

    def kept(self, name: str) -> Kept:
        identity = [content_identity(path) for path in images.files(self.root, name)]
        about: Any = {"version": __version__, "files": identity, "every": self.every}
        return Kept(self.folder / f"{name}.json", about)


def measure(setup: Setup, names: Sequence[str], runs: Sequence[Run]) -> Measured:
    """The evaluations of each run on each image, stored or computed now."""
    complete(setup, dict.fromkeys(names, runs))
    kept = [_job(setup).kept(name) for name in names]

    def stored(run: Run, results: Kept) -> Evaluations:
        return Evaluations.of([Evaluation(*results[run.path][str(k)]) for k in run.steps])

    return {run: [stored(run, results) for results in kept] for run in runs}


def complete(setup: Setup, runs: Mapping[str, Sequence[Run]]) -> None:
    """Compute and store the missing runs of each image, in one pool of processes."""
    job = _job(setup)
    job.folder.mkdir(parents=True, exist_ok=True)
    with exclusive(job.folder):
        remove_leftovers(job.folder)
        todo = [(name, list(each)) for name, each in runs.items() if _missing(job, name, each)]
        if todo:
            setup.progress(f"{len(runs)} images, of which {len(runs) - len(todo)} are done", 0)
        for number, answer in answers(job, todo, setup.num_workers):
            if isinstance(answer, Failure):
                raise FileError(f"{todo[number][0]}: {answer.message}")
            setup.progress(f"{todo[number][0]}: {answer} runs")


def _job(setup: Setup) -> Job:
    return Job(setup.voc, setup.output / "kept" / ("quick" if setup.quick else "images"), setup.every)


def is_missing(run: Run, kept: Kept) -> bool:
    """True if a step of the run has no stored evaluation, from any experiment."""
    return not {str(k) for k in run.steps} <= kept.get(run.path, {}).keys()


def _missing(job: Job, name: str, runs: Sequence[Run]) -> bool:
    kept = job.kept(name)
    return any(is_missing(run, kept) for run in runs)


def answers(
    job: Callable[[Any], Any], todo: Sequence[Any], num_workers: int | None
) -> Iterator[tuple[int, Any]]:
    """Yield (index, result or ``Failure``) of each item, from single-threaded processes or this process."""
    workers = min(num_workers or processors(), len(todo))
    if workers <= 1:
        yield from ((number, attempt(job, task)) for number, task in enumerate(todo))
        return
    with Pool(job, workers, _one_thread) as pool:
        yield from pool.run(todo)


def _one_thread() -> None:
    torch.set_num_threads(1)
