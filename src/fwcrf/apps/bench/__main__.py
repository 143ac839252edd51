"""Run the benchmarks; see ``fwcrf bench --help``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from fwcrf.apps.bench import compare
from fwcrf.apps.printable import printable

# Modules with a function ``run``. Each is imported on use, so that --help does not import torch.
RUNS = (
    "bandwidth",
    "speed",
    "inference",
    "photographs",
    "sizes",
    "others",
    "oracles",
    "layer",
    "dropin",
    "small",
    "memory",
    "scaling",
    "graph",
    "graph_map",
    "energy",
    "accuracy",
    "anneal",
    "choosing",
    "lp",
    "points",
)
# Not timings: run only if named.
APART = ("accuracy", "anneal", "choosing", "graph_map", "lp", "photographs", "points")
# They read the peak of memory from /proc, which Linux has.
ON_LINUX = ("layer", "memory", "scaling")
RESULTS = "bench-results"
QUICK_ROUNDS = 3
QUIET = 0.9  # fraction of the requested cores below which the machine counts as busy


def main(arguments: Sequence[str] | None = None) -> None:
    given = _read(arguments)
    if given.device is not None:
        from fwcrf.apps.bench import device

        agrees = device.main(given.device, given.rounds or QUICK_ROUNDS, given.quick)
        sys.exit(0 if agrees else 1)

    from fwcrf.apps.bench import plots, report
    from fwcrf.apps.bench.timing import Plan

    plan = Plan(given.rounds or (QUICK_ROUNDS if given.quick else 15), quick=given.quick)
    plan = plan.alone() if given.processor_time else plan
    stored = None if given.compare is None else compare.load(given.compare, given.quick)

    print(report.table(["machine", ""], list(report.machine().items())))
    ratios: compare.Ratios = {}
    for name in given.names or [name for name in RUNS if name not in _left_out()]:
        print(f"\n## {name.capitalize()}", flush=True)
        before = report.cores_at_hand()
        results = import_module(f"fwcrf.apps.bench.{name}").run(plan)
        cores = results["cores at hand"] = [before, report.cores_at_hand()]
        rows = results.get("rows", [])
        assert isinstance(rows, list)
        found = _ratios(rows)
        ratios |= found
        if given.store is not None and found:
            compare.store(given.store, given.quick, found)
            print(f"\n{len(found)} ratios stored in {given.store}", flush=True)
        if min(cores) < QUIET * max(plan.threads):
            print(
                f"\nthe machine was busy: {before:.1f} and {cores[1]:.1f} of {max(plan.threads)} cores were "
                "available before and after; medians are unreliable, least times need many --rounds"
            )
        print(f"\nwritten to {report.save(name, results)}", flush=True)
        for path in plots.drawn(name, results, report.RESULTS):
            print(f"drawn in {path}", flush=True)
    if stored is not None and not _compared(stored, ratios, given.compare, given.tolerance):
        sys.exit(1)


def _left_out() -> tuple[str, ...]:
    return APART if sys.platform == "linux" else APART + ON_LINUX


class _Parser(argparse.ArgumentParser):
    """Parser whose messages have no control characters."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="fwcrf bench",
        description="Time the library, in alternation with the installed peer libraries.",
        epilog=f"Results go to {RESULTS}/. Compare only ratios within one run; set "
        "OMP_WAIT_POLICY=passive on a shared machine, as this program does. Exit status: 0, 1 for a "
        "regression or a device that disagrees, 2 for bad usage.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(RUNS)} (default: all but {', '.join(_left_out())})",
    )
    parser.add_argument("--rounds", type=int, help=f"rounds to time (default: 15, quick: {QUICK_ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="about five minutes: fewer pictures, "
                        "smaller problems")  # fmt: skip
    parser.add_argument("--processor-time", action="store_true", help="one thread, in processor time: for a "
                        "machine that other programs use")  # fmt: skip
    parser.add_argument("--compare", nargs="?", type=Path, const=compare.BASELINE, metavar="FILE",
                        help=f"fail if a ratio is below FILE's (default: {compare.BASELINE})")  # fmt: skip
    parser.add_argument("--tolerance", type=float, default=compare.TOLERANCE,
                        help="accepted relative decrease of a ratio (default: %(default)s)")  # fmt: skip
    parser.add_argument("--store", nargs="?", type=Path, const=compare.BASELINE, metavar="FILE",
                        help="write this run's ratios to FILE, for --compare")  # fmt: skip
    parser.add_argument("--device", metavar="DEVICE",
                        help="instead, check a device (cuda, mps, xpu) against the CPU, time the layer "
                        "on both, and print a report to post; --quick: on a small picture")  # fmt: skip
    given = parser.parse_args(arguments)
    if given.rounds is not None and given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: expected at least 1")
    if given.device is not None and (given.names or given.compare or given.store):
        parser.error("--device takes no names, --compare or --store; expected --rounds or --quick beside it")
    if not 0 <= given.tolerance < 1:
        parser.error(f"--tolerance {given.tolerance}: expected at least 0 and below 1")
    for name in given.names:
        if name not in RUNS:
            parser.error(f"{name}: expected one of {', '.join(RUNS)}")
        if name in ON_LINUX and sys.platform != "linux":
            parser.error(f"{name} reads the peak of memory from /proc; expected Linux, or another benchmark")
    return given


def _ratios(rows: Sequence[Any]) -> compare.Ratios:
    return {key: value for row in rows for key, value in row.ratios().items()}


def _compared(stored: compare.Ratios, ratios: compare.Ratios, path: Path, tolerance: float) -> bool:
    """True if no ratio fell by more than ``tolerance``. Prints all changes."""
    from fwcrf.apps.bench import report

    found = compare.changes(stored, ratios)
    worse = compare.regressions(found, tolerance)
    print(f"\n### Ratios compared with {path}, {len(found)} of {len(ratios)} stored there; worst first\n")
    lines = [
        [c.what, f"{c.before:.2f}", f"{c.now:.2f}", f"{c.share:.2f}", "worse" if c in worse else ""]
        for c in found
    ]
    print(report.table(["", "stored", "now", "now / stored", ""], lines))
    print(f"\n{len(worse) or 'none'} fell by more than {tolerance:.0%}")
    return not worse


if __name__ == "__main__":
    main()
