"""Time refinements of random photographs against pydensecrf; write the table of performance.md.

    FWCRF_DATA=DATA python docs/measure_photographs.py

One thread, in processor time. README.md has two of the rows, and a test compares both.
"""

from __future__ import annotations

from measuring.records import record

from fwcrf.apps.bench import photographs
from fwcrf.apps.bench.timing import Plan

COLUMNS = ["median", "quarter below", "quarter above", "least", "most"]


def main() -> None:
    found = photographs.compared(Plan(rounds=2, threads=(1,)), 1)
    rows = []
    for name, ratios in found.items():
        spread = photographs.spread([*ratios.values()])
        rows.append({"pydensecrf's time over ours": name, **dict(zip(COLUMNS, spread, strict=True))})
    record("photographs", rows)


if __name__ == "__main__":
    main()
