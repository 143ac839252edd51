"""Results as Markdown tables and JSON, with a description of the machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from time import perf_counter, process_time

import torch

import fwcrf
from fwcrf import _core
from fwcrf.apps.bench import peer
from fwcrf.apps.bench.rows import Row
from fwcrf.apps.bench.timing import Spread

RESULTS = Path("bench-results")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table with the first column left-aligned and the rest right-aligned."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (w - 1) + ":" for w in widths[1:])]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        return "| " + " | ".join([first, *rest]) + " |"

    return "\n".join(map(line, [cells[0], rule, *cells[1:]]))


def machine() -> dict[str, str]:
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "instruction set in use": _core.isa(),
        "OpenMP": f"{'yes' if _core.openmp() else 'no'}, wait policy {os.environ['OMP_WAIT_POLICY']}",
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "fwcrf": fwcrf.__version__,
        "pydensecrf": _version("pydensecrf2", "pydensecrf") if peer.dcrf else "not importable",
    }


def cores_at_hand() -> float:
    """The number of cores that torch's threads get now: on a busy machine fewer than requested."""
    matrix = torch.ones(700, 700)
    used, passed = process_time(), perf_counter()
    for _ in range(5):
        matrix @ matrix
    return (process_time() - used) / (perf_counter() - passed)


def print_rows(title: str, rows: Sequence[Row]) -> None:
    """Print least figures (medians) and ratios, theirs divided by ours; all are medians over pictures."""
    print(f"\n### {title}: least (median); ratio is theirs / ours, median over pictures\n")
    lines = []
    for row in rows:
        own = [row.what, row.threads, f"{_middle(row.ours)} {row.unit}"]
        target = "" if row.target is None else f"{row.target:g}"
        if not row.theirs:
            lines.append([*own, "", "", "", ""])
        for place, who in enumerate(row.theirs):
            ratio = row.ratio(who)
            figures = f"{ratio.min:.2f} ({ratio.median:.2f})"
            lines.append([*own, who, _middle(row.theirs[who]), figures, target if place == 0 else ""])
    print(table(["", "threads", "fwcrf", "other", "theirs", "ratio", "target"], lines))


def _middle(by_picture: Mapping[str, Spread]) -> str:
    least = statistics.median(spread.min for spread in by_picture.values())
    middle = statistics.median(spread.median for spread in by_picture.values())
    digits = 1 if least < 100 else 0
    return f"{least:.{digits}f} ({middle:.{digits}f})"


def save(name: str, results: object) -> Path:
    """Write ``bench-results/<name>.json`` atomically and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    partial = path.with_suffix(f".{os.getpid()}.part")
    everything = {"machine": machine(), "results": results}
    partial.write_text(json.dumps(everything, indent=1, default=_plain) + "\n", encoding="utf-8")
    os.replace(partial, path)
    return path


def _plain(value: object) -> object:
    if isinstance(value, Row):
        return value.json()
    raise TypeError(f"{type(value).__name__} cannot be written to a report; expected rows, numbers and text.")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "version unknown"
