"""Tables in pages: measured figures between two marks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from measuring.counts import MEASURES, SCORES_ALONE, Counts, resampled
from measuring.scenes import Task

DOCS = Path(__file__).parents[1]


def write(name: str, text: str, page: str) -> None:
    """Replace the table of this name in a page of the documentation."""
    file = DOCS / page
    begin, end = f"<!-- measured: {name} -->\n", "<!-- end -->"
    old = file.read_text()
    if begin not in old:
        raise SystemExit(f"{file} has no line {begin!r}")
    new = begin + "\n" + text + "\n\n" + end
    file.write_text(re.sub(re.escape(begin) + ".*?" + end, lambda _: new, old, flags=re.S))
    print(f"{name}\n{text}\n", flush=True)


def table(found: Mapping[str, Counts], task: Task) -> str:
    """A table with the measures of each setting.

    An interval is the standard deviation of the difference to the scores alone, by a paired bootstrap over
    images.
    """
    lines = [f"| {' | '.join(('', *MEASURES))} |", "|---|" + "---:|" * len(MEASURES)]
    count = len(found[SCORES_ALONE])
    draws = np.random.default_rng(0).integers(0, count, (200, count))
    alone = resampled(found[SCORES_ALONE], task, draws)
    for name, each in found.items():
        values = each.measures(task)
        spread = np.std(resampled(each, task, draws) - alone, axis=0)
        cells = [f"{v:.1f} ± {s:.1f}" for v, s in zip(values, spread, strict=True)]
        if name == SCORES_ALONE:
            cells = [f"{v:.1f}" for v in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)
