"""Run experiments in sequence, write their files and a common report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date

from fwcrf import __version__
from fwcrf.apps.experiments.listed import EXPERIMENTS, NEEDS
from fwcrf.apps.experiments.outcome import Outcome, write
from fwcrf.apps.experiments.report import write_report
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.files import FileError


def run(names: Sequence[str], setup: Setup) -> list[Outcome]:
    """The outcomes of experiments. Writes their files, and for several a report, to ``setup.output``."""
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"there is no experiment {name!r}; expected one of {', '.join(EXPERIMENTS)}.")
        for needed in NEEDS.get(name, ()):
            if not (setup.data / needed).is_file():
                raise FileError(f"{setup.data} has no {needed}; leave out the experiment {name}, or add it.")
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
        notes.append("Quick mode: every fourth pixel, fewer settings. The numbers are not representative.")
    if setup.paper is None:
        notes.append("The paper's own curves are not shown: curves.csv was not found; give it by --paper.")
    return notes
