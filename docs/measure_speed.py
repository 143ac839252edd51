"""Time whole runs against pydensecrf; write a table of performance.md.

    FWCRF_DATA=DATA python docs/measure_speed.py TABLE [--rounds N] [--processor-time]

TABLE is inference, sizes, layer, small or memory: the benchmark of ``fwcrf bench`` whose rows it has. One
thread and two, on the wall clock, which wants a quiet machine; with --processor-time one thread alone.
"""

from __future__ import annotations

import argparse
from importlib import import_module

from measuring.records import record

from fwcrf.apps.bench.layer import STAND_IN
from fwcrf.apps.bench.rows import Row
from fwcrf.apps.bench.timing import Plan
from fwcrf.apps.experiments.tables import Cell

TABLES = {"inference": 7, "sizes": 3, "layer": 5, "small": 15, "memory": 1}  # rounds


def cells(rows: list[Row], factor: float) -> list[dict[str, Cell]]:
    """A row per problem: pydensecrf's figure over ours and the aim, both times the factor, by threads."""
    found: dict[str, dict[str, Cell]] = {}
    for row in rows:
        who = next((name for name in row.theirs if name.startswith("pydensecrf")), None)
        if who is None:
            continue
        line = found.setdefault(row.what, {"pydensecrf over fwcrf": row.what})
        threads = f"{row.threads} thread{'s' * (row.threads > 1)}"
        line[threads] = factor * row.ratio(who).min
        line[f"aim, {threads}"] = None if row.target is None else f"{factor * row.target:g}"
    return [*found.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--processor-time", action="store_true")
    given = parser.parse_args()
    plan = Plan(given.rounds or TABLES[given.table])
    plan = plan.alone() if given.processor_time else plan
    results = import_module(f"fwcrf.apps.bench.{given.table}").run(plan)
    record(f"speed-{given.table}", cells(results["rows"], STAND_IN if given.table == "layer" else 1.0))


if __name__ == "__main__":
    main()
