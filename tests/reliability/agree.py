"""Agreement fuzzing: independent paths to the same result, compared on random small cases.

    python tests/reliability/agree.py                          # all kinds, until 5,000,000 cases are done
    python tests/reliability/agree.py --seconds 60             # as many as a minute allows
    python tests/reliability/agree.py engine --cases 1000      # one kind
    python tests/reliability/agree.py engine --seed 7 --case 12      # one case again

The state, a JSON file with the seed and the counts by kind, is replaced at the start and every ten seconds:
a run that is interrupted or killed continues from it. A case is a function of seed, kind and number.
The run ends with status 1 if a disagreement was found; each is printed with the command that runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

STATE = Path("reliability-results") / "agree.json"
OUTCOMES = ("agreed", "tied", "not_compared", "disagreed")
BYTES = 160  # more than a case decides by
# Cases at a time, of kinds that take long: about as many seconds as 40 cases of the other kinds.
SLOW = {"modes": 8, "threads": 8, "ways": 8, "quotients": 16, "implicit": 2}


def kinds() -> dict[str, Callable[[Any], None]]:
    """Every comparison by name."""
    import agreement_doors as doors
    import agreement_gradients as gradients
    import agreement_models as models
    import agreement_solvers as runs

    found = (
        runs.engine, runs.engine_gradients, runs.batch, runs.threads, runs.precision, runs.modes, runs.isa,
        models.formulas, models.lattice, models.sparse, models.energies, models.dropin,
        gradients.ways, gradients.implicit, gradients.quotients,
        doors.layouts, doors.tiles, doors.masks,
    )  # fmt: skip
    return {kind.__name__: kind for kind in found}


def outcome(kind: str, seed: int, number: int) -> tuple[str, str]:
    """How a case ended, and the traceback of a disagreement."""
    from agreement_cases import NotComparable, Tie
    from choices import Bytes

    name = sum(ord(letter) * 31**place for place, letter in enumerate(kind)) % 2**32
    data = np.random.default_rng([seed, name, number]).bytes(BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            kinds()[kind](Bytes(data))
    except Tie:
        return "tied", ""
    except NotComparable:
        return "not_compared", ""
    except Exception:
        return "disagreed", traceback.format_exc()
    return "agreed", ""


def replay(kind: str, seed: int, number: int) -> str:
    return f"python tests/reliability/agree.py {kind} --seed {seed} --case {number}"


class Run:
    """Counts by kind, in a file that is whole at every moment."""

    def __init__(self, path: Path | None, seed: int | None) -> None:
        self.path = path
        stored = json.loads(path.read_text()) if path is not None and path.exists() else None
        if stored is not None and seed is not None and stored["seed"] != seed:
            raise SystemExit(f"{path} is a run with seed {stored['seed']}; remove it, or leave out --seed.")
        fresh = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self.state: dict[str, Any] = stored or {"seed": fresh, "counts": {}, "found": []}

    @property
    def seed(self) -> int:
        return self.state["seed"]

    def counts(self, kind: str) -> dict[str, int]:
        return self.state["counts"].setdefault(kind, dict.fromkeys(OUTCOMES, 0))

    def total(self) -> int:
        return sum(sum(counts.values()) for counts in self.state["counts"].values())

    def case(self, kind: str) -> None:
        """Run the next case of a kind."""
        number = sum(self.counts(kind).values())
        how, said = outcome(kind, self.seed, number)
        # Counted only when it is over: an interrupted case runs again.
        self.counts(kind)[how] += 1
        if said:
            line = replay(kind, self.seed, number)
            self.state["found"].append({"replay": line, "said": said.strip().splitlines()[-1][:500]})
            print(f"{said}found: {line}", file=sys.stderr, flush=True)

    def save(self) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        with open(beside, "w") as file:
            json.dump(self.state, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)

    def table(self) -> str:
        rows = [
            ("kind", *OUTCOMES),
            *((kind, *map(str, c.values())) for kind, c in self.state["counts"].items()),
        ]
        total = [sum(c[name] for c in self.state["counts"].values()) for name in OUTCOMES]
        rows.append(("all", *map(str, total)))
        return "\n".join(f"{row[0]:18}" + "".join(f"{value:>14}" for value in row[1:]) for row in rows)


def turns(names: list[str]) -> Iterator[str]:
    """Kinds in turn, several cases of each."""
    while True:
        for name in names:
            yield from [name] * SLOW.get(name, 40)


def perform(run: Run, names: list[str], cases: int, seconds: float, every: float = 10.0) -> None:
    """Cases of each kind in turn until there are ``cases`` or time is over, saving the state in between."""
    until, next_save = time.monotonic() + seconds, time.monotonic()
    try:
        for name in turns(names):
            if run.total() >= cases or time.monotonic() > until:
                break
            run.case(name)
            if time.monotonic() > next_save:
                run.save()
                next_save = time.monotonic() + every
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
    finally:
        run.save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", nargs="*", help="comparisons to run; all unless given")
    parser.add_argument("--cases", type=int, default=5_000_000, help="in all, with the cases of earlier runs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, help="a new one, or the one of the state, unless given")
    parser.add_argument("--case", type=int, help="run this one case, and raise if it disagrees")
    parser.add_argument("--state", type=Path, default=STATE)
    chosen = parser.parse_args()
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    import torch

    torch.set_num_threads(1)
    names = chosen.kind or [*kinds()]
    if unknown := set(names) - kinds().keys():
        parser.error(f"{', '.join(unknown)}: expected any of {', '.join(kinds())}")
    if chosen.case is not None:
        how, said = outcome(names[0], chosen.seed or 0, chosen.case)
        print(said or how)
        return int(how == "disagreed")
    run = Run(chosen.state, chosen.seed)
    before = len(run.state["found"])
    perform(run, names, chosen.cases, chosen.seconds)
    print(f"seed {run.seed}\n{run.table()}")
    for found in run.state["found"]:
        print(f"{found['said']}\n  {found['replay']}")
    return int(len(run.state["found"]) > before)


if __name__ == "__main__":
    raise SystemExit(main())
