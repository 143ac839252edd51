"""Measure the presets on the scores of real networks, and write the tables of presets.md.

    FWCRF_DATA=DATA python docs/measure_presets.py                # all tables
    FWCRF_DATA=DATA python docs/measure_presets.py --only voc     # one of them

``measuring.counts`` defines the measures. An interval is the standard deviation of the difference to the
scores alone, by a paired bootstrap over images.
"""

from __future__ import annotations

import argparse

from measuring.counts import run
from measuring.pages import table, write
from measuring.scenes import TASKS

import fwcrf

# Of each table: the task and the presets that it compares.
TABLES = {
    "voc": ("default", "paper", "pydensecrf"),
    "camvid": ("default", "paper", "pydensecrf"),
    "msrc": ("default", "paper", "pydensecrf"),
    "binary": ("binary", "default", "paper"),
    "pseudo-labels": ("pseudo-labels", "default", "paper", "pydensecrf"),
    "scribbles": ("scribbles", "default", "paper"),
}


def main() -> None:
    reader = argparse.ArgumentParser(description="Measure the presets on real scores.")
    reader.add_argument("--only", choices=TABLES, nargs="*", default=[*TABLES])
    for name in reader.parse_args().only:
        settings = {preset: fwcrf.presets.get(preset).arguments() for preset in TABLES[name]}
        write(name, table(run(TASKS[name], settings), TASKS[name]), "presets.md")


if __name__ == "__main__":
    main()
