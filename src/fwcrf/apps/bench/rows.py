"""Comparisons of our figures with other libraries: rows of a table, and their ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fwcrf.apps.bench.timing import Spread, Times


@dataclass(frozen=True)
class Compared:
    """A comparison to make: the name of our case, and the names of the peers' cases by peer."""

    what: str
    ours: str
    theirs: Mapping[str, str]
    target: Mapping[int, float] = field(default_factory=dict)  # ratio to the first peer, by threads


@dataclass(frozen=True)
class Row:
    """Figures of ours and of peers in one unit, lower is better. A ratio is theirs divided by ours."""

    what: str
    threads: int
    unit: str
    ours: Mapping[str, Spread]  # by picture
    theirs: Mapping[str, Mapping[str, Spread]]  # by name and picture
    target: float | None = None

    def ratio(self, who: str) -> Spread:
        """The ratio of least figures and the ratio of medians, each the median over pictures."""
        pairs = [(other, self.ours[picture]) for picture, other in self.theirs[who].items()]
        return Spread(
            statistics.median(a.min / b.min for a, b in pairs),
            statistics.median(a.median / b.median for a, b in pairs),
        )

    def key(self, who: str) -> str:
        """The name of the ratio in stored files."""
        return f"{self.what}; {self.threads} thread{'s' * (self.threads > 1)}; {who}"

    def ratios(self) -> dict[str, float]:
        return {self.key(who): self.ratio(who).min for who in self.theirs}

    def json(self) -> dict[str, Any]:
        ratios = {who: asdict(self.ratio(who)) for who in self.theirs}
        return {**asdict(self), "ratios": ratios}


def spreads(times: Times, scale: float = 1e3) -> dict[tuple[str, str, int | None], Spread]:
    """Least and median over the rounds, by default in milliseconds."""
    return {key: Spread.of([scale * value for value in each]) for key, each in times.items()}


def assemble(
    found: Mapping[tuple[str, str, int | None], Spread],
    wanted: Sequence[Compared],
    threads: Sequence[int],
    unit: str = "ms",
) -> list[Row]:
    """Rows of the measured comparisons. A single-threaded peer (threads None) appears in every row."""
    rows = []
    for compared in wanted:
        for count in threads:
            ours = {
                p: spread for (p, name, t), spread in found.items() if (name, t) == (compared.ours, count)
            }
            theirs = {who: _peer(found, case, count, ours) for who, case in compared.theirs.items()}
            if ours:
                there = {who: by_picture for who, by_picture in theirs.items() if by_picture}
                rows.append(Row(compared.what, count, unit, ours, there, compared.target.get(count)))
    return rows


def _peer(
    found: Mapping[tuple[str, str, int | None], Spread], case: str, threads: int, ours: Mapping[str, Spread]
) -> dict[str, Spread]:
    return {
        picture: spread
        for (picture, name, count), spread in found.items()
        if name == case and count in (None, threads) and picture in ours
    }
