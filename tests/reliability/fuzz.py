"""Run a fuzz target over many cases, and say how many.

    python tests/reliability/fuzz.py image --cases 100000 --seed 1
    python tests/reliability/fuzz.py image --atheris --cases 100000     # guided by coverage

The last line is a JSON record. A find (an exception that is no refusal, a wrong answer, a case of more than
``--seconds-per-case``, or memory beyond ``--memory``) ends the run with status 1 and writes the case to a
file, which ``--replay`` runs again. A crash of the process leaves the case in the same place.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import faulthandler
import hashlib
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

Target = Callable[[bytes], None]
FOUND = Path("fuzz-found")


def targets() -> dict[str, Target]:
    """Every target by name, as a function of bytes."""
    import api_targets
    import file_targets
    import native_targets
    from choices import Bytes

    def of_choices(target: Callable[..., None]) -> Target:
        return lambda data: target(Bytes(data))

    return {
        **file_targets.TARGETS,
        **{
            name: of_choices(target)
            for name, target in (api_targets.TARGETS | native_targets.TARGETS).items()
        },
    }


def case(random: np.random.Generator, name: str) -> bytes:
    """A random case: a changed file, or bytes to choose by."""
    import file_targets

    if name in file_targets.SEEDS:
        return file_targets.mutated(random, file_targets.SEEDS[name]())
    return random.bytes(int(random.integers(8, 200)))


class Counter:
    """Runs cases and counts them; keeps the one at work in a file, for a crash leaves nothing else."""

    def __init__(self, name: str, patience: float) -> None:
        self.name, self.patience = name, patience
        self.target = targets()[name]
        self.answered = self.refused = 0
        self.slowest = 0.0
        self.start = time.perf_counter()
        FOUND.mkdir(exist_ok=True)
        self.path = FOUND / f"{name}-crashed-{os.getpid()}"
        self.file = os.open(self.path, os.O_CREAT | os.O_RDWR)
        atexit.register(self.path.unlink, missing_ok=True)  # which a crash leaves out

    def __call__(self, data: bytes) -> None:
        from api_targets import Refused

        # A hang is ended from a thread of its own, with a traceback.
        faulthandler.dump_traceback_later(self.patience, exit=True)
        os.pwrite(self.file, data, 0)
        os.ftruncate(self.file, len(data))
        start = time.perf_counter()
        try:
            self.target(data)
            self.answered += 1
        except Refused:
            self.refused += 1
        except BaseException:
            self.keep(data)
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
            self.slowest = max(self.slowest, time.perf_counter() - start)

    def keep(self, data: bytes) -> None:
        path = FOUND / f"{self.name}-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"found: {path}", file=sys.stderr)

    def record(self, **more: object) -> str:
        import resource  # not on Windows, which imports this file for its targets

        return json.dumps(
            {
                "target": self.name,
                "cases": self.answered + self.refused,
                "answered": self.answered,
                "refused": self.refused,
                "seconds": round(time.perf_counter() - self.start, 1),
                "slowest_ms": round(1000 * self.slowest, 1),
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
                **more,
            }
        )


def random_cases(run: Counter, cases: int, seed: int, seconds: float) -> None:
    """A case is a function of the seed and its number, so that any one can be had again."""
    until = time.monotonic() + seconds
    for number in range(cases):
        run(case(np.random.default_rng([seed, number]), run.name))
        if number % 100 == 0 and time.monotonic() > until:
            break


def guided_cases(run: Counter, cases: int, seed: int, corpus: Path) -> None:
    """Of files, by atheris, that is libFuzzer, which keeps the cases that reach new code in ``corpus``."""
    import atheris
    import file_targets

    instrument(run)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(file_targets.SEEDS[run.name]()):
        (corpus / f"seed-{number}").write_bytes(data)
    options = [f"-seed={seed + 1}", "-max_len=4096", "-rss_limit_mb=6000", "-timeout=300"]

    def one(data: bytes) -> None:
        run(bytes(data))
        if run.answered + run.refused == cases:
            print(run.record(guided=True), flush=True)
            run.path.unlink()
            os._exit(0)  # libFuzzer would end the process without a word from Python

    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


def instrument(run: Counter) -> None:
    """Let atheris see where a case leads: in all functions of these packages that the target imports.

    Its hook for imports does not see what an editable installation loads.
    """
    import atheris
    import file_targets

    for data in file_targets.SEEDS[run.name]():  # readers import what a file needs when they meet one
        with contextlib.suppress(Exception):
            run.target(data)
    for name, module in [*sys.modules.items()]:
        if name.split(".")[0] not in ("fwcrf", "tifffile", "nibabel", "yaml", "PIL"):
            continue
        for owner in (module, *(v for v in vars(module).values() if inspect.isclass(v))):
            for value in vars(owner).values():
                function = getattr(value, "__func__", value)
                if inspect.isfunction(function) and function.__module__ == name:
                    atheris.instrument_func(function)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seconds-per-case", type=float, default=300.0)
    parser.add_argument("--memory", type=int, default=0, help="bound on the address space, in MB")
    parser.add_argument("--atheris", action="store_true")
    parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"))
    parser.add_argument("--replay", type=Path, help="run this one case")
    chosen = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    faulthandler.enable()
    if chosen.memory:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (chosen.memory << 20, chosen.memory << 20))
    import torch

    torch.set_num_threads(1)
    run = Counter(chosen.target, chosen.seconds_per_case)
    if chosen.replay:
        run(chosen.replay.read_bytes())
        print(run.record())
        return 0
    if chosen.atheris:
        guided_cases(run, chosen.cases, chosen.seed, chosen.corpus / chosen.target)
        return 0
    try:
        random_cases(run, chosen.cases, chosen.seed, chosen.seconds)
    except Exception:
        traceback.print_exc()
        print(run.record(found=True))
        return 1
    print(run.record())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
