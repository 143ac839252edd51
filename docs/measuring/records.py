"""Measured tables that are kept as CSV files beside the pages, so that a test can compare both."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from fwcrf.apps.experiments.tables import Cell, Row, as_csv, as_markdown
from measuring.pages import DOCS, write

FOLDER = DOCS / "assets" / "experiments"
PAGES = {
    "choices-camvid": "experiments.md",
    "chosen-camvid": "experiments.md",
    "fit-choices": "command-line.md",
    "fit-gain": "command-line.md",
    "photographs": "performance.md",
    "scribbles": "losses.md",
    "speed-inference": "performance.md",
    "speed-layer": "performance.md",
    "speed-memory": "performance.md",
    "speed-sizes": "performance.md",
    "speed-small": "performance.md",
    "steps": "performance.md",
}


def record(name: str, rows: Sequence[Row]) -> None:
    """Write a table as CSV and into its page."""
    path(name).write_bytes(as_csv(rows))
    write(name, table(name), PAGES[name])


def table(name: str) -> str:
    """The table of a CSV file, as its page shows it."""
    return as_markdown(recorded(name)).rstrip()


def recorded(name: str) -> list[Row]:
    """The rows of a CSV file."""
    with path(name).open(newline="") as file:
        return [{key: _cell(text) for key, text in row.items()} for row in csv.DictReader(file)]


def path(name: str) -> Path:
    return FOLDER / f"{name}.csv"


def _cell(text: str) -> Cell:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
