"""Measurements of candidates on images, in several processes, kept in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fwcrf.apps.batch.job import Reading, read_files, recorded_warnings
from fwcrf.apps.batch.local import Failure, Pool
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.digest import content_identity
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.labels import read_labels
from fwcrf.apps.files.safe_json import load_json
from fwcrf.apps.files.settings import Settings

Areas = list[list[int]]  # see shared.areas


@dataclass(frozen=True)
class Measured:
    """Areas of each candidate on an image, and the warnings of their computation."""

    areas: list[Areas]
    warnings: list[str]


@dataclass(frozen=True)
class AreasJob:
    """Function from an item and candidates to their areas."""

    reading: Reading

    def __call__(self, task: tuple[Item, Sequence[Settings]]) -> Measured:
        import torch

        from fwcrf.apps.tuning.shared import areas, arguments

        torch.set_num_threads(1)
        item, candidates = task
        truth = read_truth(item, self.reading)
        found = []
        with recorded_warnings() as messages:
            inputs = read_files(item.image, item.scores, self.reading)
            for given in arguments(candidates):
                labels = inputs.refine(given).labels
                if labels.shape != truth.shape:
                    raise FileError(
                        f"{item.truth} has shape {truth.shape}, and the labels {labels.shape}; expected the "
                        "same."
                    )
                found.append(areas(torch.from_numpy(labels), torch.from_numpy(truth), self.reading.void))
        return Measured(found, messages)


def read_truth(item: Item, reading: Reading) -> np.ndarray:
    """True labels of an item, int64."""
    assert item.truth is not None
    truth = read_labels(item.truth, limit=reading.limit).astype(np.int64)
    if (truth == reading.void).all():
        raise FileError(f"{item.truth} has nothing but {reading.void}, which means unlabelled.")
    return truth


class Table:
    """Areas by candidate and item, in memory and in a file with which an interrupted search resumes."""

    def __init__(self, reading: Reading, pool: Pool, journal: Path | str | None) -> None:
        self.reading: Reading = reading
        self.pool: Pool = pool
        self.path: Path | None = None if journal is None else Path(journal)
        stored = self.path.read_bytes() if self.path is not None and self.path.exists() else b""
        self.known: dict[str, Areas] = dict(journal_lines(stored))
        self.cut: bool = (
            not stored.endswith(b"\n") and stored != b""
        )  # by an interruption, within its last line
        self.warnings: list[tuple[str, str]] = []
        # Files are hashed once per search, not once per trial.
        self.contents: dict[Item, list[list[str]]] = {}

    def key(self, settings: Settings, item: Item) -> str:
        """Hash of everything that a result depends on: settings, content of the input files and version."""
        from fwcrf import __version__

        if item not in self.contents:
            paths = (item.image, item.scores, item.truth)
            self.contents[item] = [content_identity(path) for path in paths if path]
        files, reading = self.contents[item], asdict(self.reading)
        return settings.fingerprint(version=__version__, reading=reading, files=files)

    def measure(
        self,
        items: Sequence[Item],
        groups: Sequence[Sequence[Settings]],
        done: Callable[[int], object] = lambda group: None,
    ) -> dict[Item, str]:
        """Measure every group of candidates on every item; return the items that failed, with reasons.

        ``done`` is called with the number of each group that is complete, without failures.
        """
        failed: dict[Item, str] = {}
        owners, tasks = [], []
        left = [0] * len(groups)
        for number, group in enumerate(groups):
            for item in items:
                missing = [one for one in group if self.key(one, item) not in self.known]
                if missing:
                    owners.append(number)
                    tasks.append((item, missing))
                    left[number] += 1
            if not left[number]:
                done(number)
        for index, answer in self.pool.run(tasks):
            item, candidates = tasks[index]
            if isinstance(answer, Failure):
                failed[item] = answer.message
                continue
            for settings, areas in zip(candidates, answer.areas, strict=True):
                self._keep(self.key(settings, item), areas)
            self.warnings += [(item.scores, message) for message in answer.warnings]
            left[owners[index]] -= 1
            if not left[owners[index]]:
                done(owners[index])
        # All candidates read the same files, so a warning about a file is kept once.
        self.warnings = list(dict.fromkeys(self.warnings))
        return failed

    def areas(self, candidates: Sequence[Settings], items: Sequence[Item]) -> np.ndarray:
        """Areas, ``(candidates, items, 3, labels)``."""
        rows = [[self.known[self.key(one, item)] for item in items] for one in candidates]
        size = max(len(areas[0]) for row in rows for areas in row)
        table = np.zeros((len(rows), len(items), 3, size))
        for c, row in enumerate(rows):
            for i, areas in enumerate(row):
                table[c, i, :, : len(areas[0])] = areas
        return table

    def _keep(self, key: str, areas: Areas) -> None:
        self.known[key] = areas
        if self.path is not None:
            with open(self.path, "ab") as file:
                file.write(b"\n" * self.cut + json.dumps([key, areas]).encode() + b"\n")
            self.cut = False


def journal_lines(stored: bytes) -> Iterator[tuple[str, Areas]]:
    """Keys and areas of a journal; damaged lines are skipped."""
    for line in stored.splitlines():
        try:
            key, areas = load_json(line, "the journal")
            right = np.array(areas, dtype=np.int64).shape == (3, len(areas[0])) and len(areas[0]) > 0
        except (ValueError, TypeError, LookupError, RuntimeError, OverflowError):
            continue
        if right and isinstance(key, str):
            yield key, areas
