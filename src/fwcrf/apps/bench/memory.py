"""Peak memory of a complete inference of five steps, compared with other libraries.

Each figure comes from a new process: the peak, minus the memory in use after imports, inputs and a small
warm-up inference, which loads code and starts threads.
"""

from __future__ import annotations

import argparse
import json
import mmap
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fwcrf.apps.bench import peer, peers, pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, assemble
from fwcrf.apps.bench.timing import Plan, Spread, Work

LABELS = 21
STEPS = 5


def prepared(who: str, image: np.ndarray, labels: int) -> Work:
    """The inference of a library on an image, with its inputs allocated."""
    unary = peer.unary(image, labels)
    inference = peers.ours if who == "fwcrf" else peers.available()[who].inference
    return inference(image, unary, STEPS)


def growth(who: str, image: np.ndarray, labels: int) -> int:
    """Peak extra bytes of an inference in this process."""
    return extra(lambda i: prepared(who, i, labels), image)


def extra(prepare: Callable[[np.ndarray], Callable[[], object]], image: np.ndarray) -> int:
    """Peak memory of this process during the work on an image, minus its memory before, in bytes."""
    prepare(image[:40, :50].copy())()
    work = prepare(image)
    before = _held()
    _forget_peak()
    work()
    return _peak() - before


def measure(who: str, picture: str, width: int, height: int, labels: int, threads: int) -> int:
    """``growth`` in a fresh process, in bytes."""
    arguments = [who, picture, width, height, labels, threads]
    command = [sys.executable, "-m", "fwcrf.apps.bench.memory", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    size = (pictures.WIDTH, pictures.HEIGHT, LABELS)
    names = pictures.names(1 if plan.quick else None)
    found: dict[tuple[str, str, int | None], Spread] = {}
    everyone = {"fwcrf": plan.threads} | {
        who: plan.threads if each.threads else (None,) for who, each in peers.available().items()
    }
    for who, counts in everyone.items():
        # Libraries that take seconds are measured on one picture.
        for name in names if who in ("fwcrf", "pydensecrf") else names[:1]:
            for count in counts:
                megabytes = measure(who, name, *size, count or 1) / 1e6
                found[name, who, count] = Spread(megabytes, megabytes)
    what = f"peak extra memory, {STEPS} steps of mf, 500 x 375, {LABELS} labels"
    wanted = [Compared(what, "fwcrf", {who: who for who in everyone if who != "fwcrf"}, {1: 1.0, 2: 1.0})]
    rows = assemble(found, wanted, plan.threads, "MB")
    print_rows("Memory", rows)
    return {"rows": rows}


def _held() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * mmap.PAGESIZE


def _forget_peak() -> None:
    """Reset the kernel's peak counter: the peak during imports may exceed the peak of the work."""
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def _peak() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure memory once, in bytes; called by the benchmark.")
    parser.add_argument("who", choices=["fwcrf", *peers.available()])
    parser.add_argument("picture")
    for name in ("width", "height", "labels", "threads"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    image = pictures.named(given.picture, given.width, given.height)
    print(json.dumps(growth(given.who, image, given.labels)))


if __name__ == "__main__":
    main()
