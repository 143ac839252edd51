"""Run the benchmarks; see ``fwcrf bench --help``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from fwcrf.bench import accuracy, anneal, dropin, graph, layer, memory, oracles, report, scaling, speed

RUNS: dict[str, Callable[[int], dict[str, object]]] = {
    "speed": lambda rounds: speed.run(rounds),
    "oracles": lambda rounds: oracles.run(rounds),
    "layer": lambda rounds: layer.run(rounds),
    "dropin": lambda rounds: dropin.run(rounds),
    "graph": lambda rounds: graph.run(rounds),
    "memory": lambda rounds: memory.run(),
    "scaling": lambda rounds: scaling.run(rounds),
    "accuracy": lambda rounds: accuracy.run(),
    "anneal": lambda rounds: anneal.run(),
}
DEFAULT = ["speed", "memory"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="fwcrf bench", description="Time the library and its peers.")
    parser.add_argument(
        "name", nargs="?", choices=[*RUNS, "all"], help=f"what to run (default: {' and '.join(DEFAULT)})"
    )
    parser.add_argument("--rounds", type=int, default=15, help="repetitions of what is timed (default: 15)")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: expected at least 1")

    print(report.table(["machine", ""], list(report.machine().items())))
    for name in {None: DEFAULT, "all": RUNS}.get(given.name, [given.name]):
        print(f"\n## {name.capitalize()}", flush=True)
        path = report.save(name, RUNS[name](given.rounds))
        print(f"\nwritten to {path}", flush=True)


if __name__ == "__main__":
    main()
