"""Log of training steps and validations: CSV files and, optionally, TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from fwcrf.apps.files.atomic import writing
from fwcrf.optional import needed


class Table:
    """A CSV file whose first column is the step. ``add`` appends a row.

    Opening at ``step`` deletes rows of later steps: a run wrote them after its last checkpoint, and the
    resumed run repeats these steps.
    """

    def __init__(self, path: Path, columns: Sequence[str], step: int) -> None:
        self.columns: list[str] = ["step", *columns]
        kept = [row for row in _rows(path, self.columns) if int(row[0]) <= step]
        with writing(path) as file:
            file.write(_text([self.columns, *kept]).encode())
        self.file: IO[str] = open(path, "a", newline="", encoding="utf-8")  # noqa: SIM115

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        row = [step, *("" if values.get(name) is None else values[name] for name in self.columns[1:])]
        self.file.write(_text([row]))
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class Log:
    """``train.csv`` with the loss and learning rates of each step, ``validation.csv``, and TensorBoard."""

    def __init__(self, folder: Path, step: int, classes: Sequence[str], tensorboard: bool) -> None:
        self.steps: Table = Table(folder / "train.csv", ("epoch", "loss", "cnn_lr", "crf_lr"), step)
        self.validations: Table = Table(
            folder / "validation.csv", ("epoch", "mean_iou", "accuracy", *classes), step
        )
        self.board: Any = None
        if tensorboard:
            board = needed("torch.utils.tensorboard", "tensorboard")
            self.board = board.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def step(self, step: int, **values: Any) -> None:
        self._add(self.steps, "train", step, values)

    def validation(self, step: int, **values: Any) -> None:
        self._add(self.validations, "validation", step, values)

    def _add(self, table: Table, kind: str, step: int, values: Mapping[str, Any]) -> None:
        table.add(step, values)
        if self.board is not None:
            for name, value in values.items():
                if value is not None:
                    self.board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self.steps.close()
        self.validations.close()
        if self.board is not None:
            self.board.close()


def _rows(path: Path, columns: list[str]) -> list[list[str]]:
    """The complete rows of a file, without a last row cut off by a crash."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = list(csv.reader(line for line in lines if line.endswith("\n")))
    return [row for row in rows[1:] if len(row) == len(columns)]


def _text(rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
