"""Experiments one after the other, their files, and the report of all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date

from fwcrf import __version__
from fwcrf.apps.experiments.listed import EXPERIMENTS
from fwcrf.apps.experiments.outcome import Outcome, write
from fwcrf.apps.experiments.report import write_report
from fwcrf.apps.experiments.setup import Setup


def run(names: Sequence[str], setup: Setup) -> list[Outcome]:
    """Do experiments by name and write their files to ``setup.output``; of several, a report as well."""
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {name!r}; expected one of {', '.join(EXPERIMENTS)}.")
    outcomes = []
    for name in names:
        setup.progress(f"--- {name}", 0)
        begin = time.monotonic()
        outcomes.append(EXPERIMENTS[name](setup))
        write(outcomes[-1], setup.output)
        setup.progress(f"--- {name} took {time.monotonic() - begin:.0f} s", 0)
    if len(outcomes) > 1:
        write_report(setup.output / "report.html", outcomes, _notes(setup))
    return outcomes


def _notes(setup: Setup) -> list[str]:
    notes = [f"fwcrf {__version__}, {date.today().isoformat()}."]
    if setup.quick:
        notes.append("A quick look: every fourth pixel, fewer settings. The figures mean little.")
    if setup.paper is None:
        notes.append("The paper's own curves are not shown: there is no curves.csv; give it by --paper.")
    return notes
