"""Write the tables of joint training in experiments.md from the results of the experiment.

    fwcrf experiment joint --data DATA -o FOLDER --seeds 0 --seeds 1 --seeds 2
    python docs/measure_joint.py FOLDER

Verdicts go to the table of claims, means over seeds to the section on joint training, and the figure and the
CSV files to ``docs/assets/experiments``.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

from measuring.pages import DOCS, write

NAMES = ("joint", "joint-voc")
PARAMETERS = ("network", "weights", "compatibility", "temperature")
MEASURES = ("accuracy", "boundary F", "trimap IoU")
# Columns that are not classes.
OTHERS = {"model", "run", "seconds of training", "Potts", *MEASURES, *(f"change of {p}" for p in PARAMETERS)}


def main() -> None:
    reader = argparse.ArgumentParser(description="Write the tables of joint training.")
    reader.add_argument("folder", type=Path, help="results of fwcrf experiment joint")
    reader.add_argument("--name", choices=NAMES, default="joint")
    given = reader.parse_args()
    rows, verdicts = (_read(given.folder / f"{given.name}{end}.csv") for end in ("", "-verdicts"))
    _write_claims(given.name, verdicts)
    write(f"{given.name}-verdicts", judged(verdicts), "experiments.md")
    write(given.name, summary(rows), "experiments.md")
    write(f"{given.name}-classes", per_class(rows), "experiments.md")
    for end in (".svg", ".csv", "-verdicts.csv"):
        shutil.copy(given.folder / f"{given.name}{end}", DOCS / "assets" / "experiments")


def judged(verdicts: Sequence[dict[str, str]]) -> str:
    """What holds and what does not, with the differences in mean IoU."""
    lines = ["| claim of the paper | difference | interval | verdict |", "|---|---:|---:|---|"]
    for row in verdicts:
        low, high, value = (float(row[key]) for key in ("low", "high", "difference"))
        lines.append(f"| {row['claim']} | {value:+.2f} | {low:+.2f} to {high:+.2f} | {row['verdict']} |")
    return "\n".join(lines)


def summary(rows: Sequence[dict[str, str]]) -> str:
    """Means over runs; the deviation over seeds of the mean IoU; the largest changes of parameters."""
    measure = _measure(rows)
    head = ("", "runs", measure, *MEASURES, "largest change of")
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 2) + "---|"]
    for model in dict.fromkeys(row["model"] for row in rows):
        values = _values(rows, model, measure)
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        moved = [
            f"{name} {max(found):.2g}"
            for name in PARAMETERS
            if (found := _values(rows, model, f"change of {name}"))
        ]
        means = [f"{statistics.mean(_values(rows, model, name)):.2f}" for name in MEASURES]
        cells = (model, str(len(values)), f"{statistics.mean(values):.2f}{spread}", *means, ", ".join(moved))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def per_class(rows: Sequence[dict[str, str]]) -> str:
    """IoU of each class, means over runs, without the CRFs that are not trained yet."""
    classes = [name for name in rows[0] if name not in OTHERS and name != _measure(rows)]
    lines = [f"| | {' | '.join(c.replace('_', ' ') for c in classes)} |", "|---|" + "---:|" * len(classes)]
    for model in dict.fromkeys(row["model"] for row in rows):
        if not model.endswith("untrained"):
            found = [_values(rows, model, c) for c in classes]
            lines.append(
                f"| {model} | " + " | ".join(f"{statistics.mean(f):.1f}" if f else "" for f in found) + " |"
            )
    return "\n".join(lines)


def claim_line(name: str, row: dict[str, str]) -> str:
    """The row of a verdict in the table of claims."""
    several = (
        "least difference" if " and eFW" in row["claim"] or "no solver" in row["claim"] else "difference"
    )
    low, high, value = (float(row[key]) for key in ("low", "high", "difference"))
    return (
        f"| `{name}` | {row['claim']} | {row['figures']}; {several} {value:.2f} | "
        f"{low:.2f} to {high:.2f} | {row['images']} | {row['verdict']} |"
    )


def _write_claims(name: str, verdicts: Sequence[dict[str, str]]) -> None:
    """Replace the rows of an experiment in the table of claims."""
    file = DOCS / "experiments.md"
    text = file.read_text()
    for row in verdicts:
        line = claim_line(name, row)
        old = rf"^\| `{name}` \| {re.escape(row['claim'])} \|.*$"
        text, count = re.subn(old, lambda _, line=line: line, text, flags=re.MULTILINE)
        if count != 1:
            raise SystemExit(f"{file} has {count} rows for the claim {row['claim']!r}; expected one.")
    file.write_text(text)


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _measure(rows: Sequence[dict[str, str]]) -> str:
    return next(name for name in rows[0] if name.startswith("mIoU"))


def _values(rows: Sequence[dict[str, str]], model: str, column: str) -> list[float]:
    return [float(row[column]) for row in rows if row["model"] == model and row[column]]


if __name__ == "__main__":
    main()
