"""The result of an experiment: rows, a figure, and the paper's statements, confirmed or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fwcrf.apps.experiments.tables import Row, as_csv
from fwcrf.apps.files.atomic import writing


@dataclass(frozen=True)
class Finding:
    """A sentence with numbers. ``holds``: it agrees with the paper; None if the paper makes no statement."""

    sentence: str
    holds: bool | None = None

    def __str__(self) -> str:
        if self.holds is None:
            return f"Besides: {self.sentence}"
        return f"{'As in the paper' if self.holds else 'Not as in the paper'}: {self.sentence}"


@dataclass(frozen=True)
class Outcome:
    name: str
    title: str
    setting: str  # images, model and steps, to interpret the numbers
    rows: Sequence[Row]  # all numbers
    summary: Sequence[Row]  # the main numbers
    figure: bytes  # SVG
    findings: Sequence[Finding]

    @property
    def conclusion(self) -> str:
        return " ".join(f"{finding}." for finding in self.findings)


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.csv, NAME.svg and the conclusion NAME.txt, each atomically. Returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        ".csv": as_csv(outcome.rows),
        ".svg": outcome.figure,
        ".txt": (outcome.conclusion + "\n").encode(),
    }
    paths = []
    for ending, content in contents.items():
        paths.append(folder / f"{outcome.name}{ending}")
        with writing(paths[-1]) as file:
            file.write(content)
    return paths
