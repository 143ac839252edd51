"""Runs over a set of images: in several processes, each run of each image once and for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fwcrf import __version__
from fwcrf.batch.job import file_identity
from fwcrf.batch.local import Failure, Pool, attempt, processors
from fwcrf.batch.lock import exclusive
from fwcrf.experiments import images
from fwcrf.experiments.kept import Kept
from fwcrf.experiments.runs import Run, Seen, carry_out
from fwcrf.experiments.setup import Setup
from fwcrf.files import FileError
from fwcrf.files.atomic import remove_leftovers

Measured = dict[Run, list[Seen]]  # an entry per image


@dataclass(frozen=True)
class Job:
    """All runs of an image that are still missing; its energy is built once per model."""

    root: Path
    folder: Path
    every: int

    def __call__(self, task: tuple[str, list[Run]]) -> int:
        name, runs = task
        kept = self.kept(name)
        missing = [run for run in runs if run.key not in kept]
        picture = images.load(self.root, name, self.every)
        ignore = images.scored(self.root).classes.ignore_index
        for model in dict.fromkeys(run.model for run in missing):
            problem = model.problem(picture, self.every)
            for run in missing:
                if run.model == model:
                    kept[run.key] = asdict(carry_out(run, problem, picture.truth, ignore))
        return len(missing)

    def kept(self, name: str) -> Kept:
        identity = [file_identity(str(path)) for path in images.files(self.root, name)]
        about: Any = {"version": __version__, "files": identity, "every": self.every}
        return Kept(self.folder / f"{name}.json", about)


def measure(setup: Setup, names: Sequence[str], runs: Sequence[Run]) -> Measured:
    """What is seen of each run on each image; what was measured before is not measured again."""
    folder = setup.output / "kept" / ("quick" if setup.quick else "images")
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(setup.voc, folder, setup.every)
    with exclusive(folder):
        remove_leftovers(folder)
        todo = [(name, list(runs)) for name in names if _missing(job, name, runs)]
        if todo:
            setup.progress(f"{len(names)} images, of which {len(names) - len(todo)} are done", 0)
        for number, answer in _answers(job, todo, setup.num_workers):
            if isinstance(answer, Failure):
                raise FileError(f"{todo[number][0]}: {answer.message}")
            setup.progress(f"{todo[number][0]}: {answer} runs")
        kept = [job.kept(name) for name in names]
    return {run: [Seen(**one[run.key]) for one in kept] for run in runs}


def _missing(job: Job, name: str, runs: Sequence[Run]) -> bool:
    kept = job.kept(name)
    return any(run.key not in kept for run in runs)


def _answers(job: Job, todo: list[tuple[str, list[Run]]], num_workers: int | None):
    workers = min(num_workers or processors(), len(todo))
    if workers <= 1:
        yield from ((number, attempt(job, task)) for number, task in enumerate(todo))
        return
    with Pool(job, workers, _one_thread) as pool:
        yield from pool.run(todo)


def _one_thread() -> None:
    torch.set_num_threads(1)
