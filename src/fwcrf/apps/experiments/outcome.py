"""What an experiment gives: rows, a figure, and whether what the paper says holds here, by the figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fwcrf.apps.experiments.tables import Row, as_csv
from fwcrf.storage.atomic import writing


@dataclass(frozen=True)
class Finding:
    """A sentence with figures in it, and whether it is what the paper says; None where it says nothing."""

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
    setting: str  # images, model, steps: what one has to know to read the figures
    rows: Sequence[Row]  # all figures
    summary: Sequence[Row]  # those to read
    figure: bytes  # SVG
    findings: Sequence[Finding]

    @property
    def conclusion(self) -> str:
        return " ".join(f"{finding}." for finding in self.findings)


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """NAME.csv, NAME.svg and, in one line, NAME.txt: each whole or not at all."""
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
