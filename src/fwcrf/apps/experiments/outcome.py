"""The result of an experiment: rows, a figure, and verdicts on the paper's claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.tables import Row, as_csv
from fwcrf.apps.experiments.verdict import Interval, Verdict
from fwcrf.apps.files.atomic import writing


@dataclass(frozen=True)
class Finding:
    """Figures as a sentence. With ``claim``, they are for or against it by an interval or a verdict.

    Verdicts on claims about every image, by ``verdict.exact``, have no interval.
    """

    figures: str
    claim: Claim | None = None
    judged: Interval | Verdict | None = None

    @property
    def interval(self) -> Interval | None:
        return self.judged if isinstance(self.judged, Interval) else None

    @property
    def verdict(self) -> Verdict | None:
        """None without a claim."""
        return self.judged.verdict if isinstance(self.judged, Interval) else self.judged

    def __str__(self) -> str:
        if self.claim is None or self.verdict is None:
            return f"Besides: {self.figures}."
        interval = f"; {self.interval}" if self.interval else ""
        return f"{self.verdict.value}: {self.claim.statement}. Here: {self.figures}{interval}."


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
        """A line per finding."""
        return "\n".join(map(str, self.findings))

    @property
    def verdicts(self) -> list[Row]:
        """A row per claim, with its interval."""
        return [_row(self.name, finding) for finding in self.findings if finding.claim is not None]


def _row(name: str, finding: Finding) -> Row:
    assert finding.claim is not None and finding.verdict is not None
    found = finding.interval
    known = found is not None and math.isfinite(found.low)
    return {
        "experiment": name,
        "claim": finding.claim.statement,
        "verdict": finding.verdict.value,
        "difference": found.value if found else None,
        "low": found.low if found and known else None,
        "high": found.high if found and known else None,
        "bound": found.bound if found else None,
        "images": found.images if found else None,
        "training runs": found.runs if found else None,
        "figures": finding.figures,
    }


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """Write NAME.csv, NAME.svg, the conclusion NAME.txt and NAME-verdicts.csv. Returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        ".csv": as_csv(outcome.rows),
        ".svg": outcome.figure,
        ".txt": (outcome.conclusion + "\n").encode(),
    }
    if outcome.verdicts:
        contents["-verdicts.csv"] = as_csv(outcome.verdicts)
    paths = []
    for ending, content in contents.items():
        paths.append(folder / f"{outcome.name}{ending}")
        with writing(paths[-1]) as file:
            file.write(content)
    return paths
