"""Peak memory of building a bilateral kernel and applying it five times, beside pydensecrf.

Each figure comes from a process of its own: what it holds after imports, inputs and a small rehearsal
(which loads code and starts threads) is subtracted from the most it holds afterwards. pydensecrf does a
whole ``inference(5)``, since it has no call for a filter.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from fwcrf.bench import peer, pictures
from fwcrf.bench.report import table
from fwcrf.kernels import Bilateral

CHANNELS = 21
XY, COLOR = 80.0, 13.0
APPLICATIONS = 5


def ours(image: np.ndarray, x: torch.Tensor) -> None:
    K = Bilateral(XY, COLOR).operator(image).without_self_edges()
    for _ in range(APPLICATIONS):
        K(x)


def theirs(image: np.ndarray, unary: np.ndarray) -> None:
    peer.model(image, unary, 1, XY, COLOR).inference(APPLICATIONS)


def prepared(who: str, image: np.ndarray, channels: int):
    """The work on an image, with its inputs already there."""
    unary = peer.unary(image, channels)
    if who == "pydensecrf":
        return lambda: theirs(image, unary)
    x = torch.from_numpy(np.ascontiguousarray(unary.T))
    return lambda: ours(image, x)


def growth(who: str, image: np.ndarray, channels: int) -> int:
    """Bytes by which the peak of this process exceeds what it holds before the work."""
    return extra(lambda i: prepared(who, i, channels), image)


def extra(prepare: Callable[[np.ndarray], Callable[[], object]], image: np.ndarray) -> int:
    """Bytes by which the peak of this process exceeds what it holds before the work on an image."""
    prepare(image[:40, :50].copy())()
    work = prepare(image)
    before = _held()
    _forget_peak()
    work()
    return _peak() - before


def measure(who: str, picture: str, width: int, height: int, channels: int, threads: int) -> int:
    """``growth`` in a fresh process, in bytes."""
    arguments = [who, picture, width, height, channels, threads]
    command = [sys.executable, "-m", "fwcrf.bench.memory", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def run() -> dict[str, object]:
    """Measure, print, and return everything."""
    size = (pictures.WIDTH, pictures.HEIGHT, CHANNELS)
    results: dict[str, dict[str, float]] = {}
    for name in pictures.names():
        row = {f"fwcrf, {t} thread{'s' * (t > 1)}": measure("fwcrf", name, *size, t) / 1e6 for t in (1, 2)}
        if peer.dcrf:
            row["pydensecrf"] = measure("pydensecrf", name, *size, 1) / 1e6
        results[name] = row
    print(f"\n### Peak extra memory in MB, {APPLICATIONS} applications, 500 x 375, {CHANNELS} channels\n")
    head = list(next(iter(results.values())))
    print(table(["picture", *head], [[n, *(f"{row[h]:.0f}" for h in head)] for n, row in results.items()]))
    return {"megabytes": results}


def _held() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _forget_peak() -> None:
    """Let the kernel count the peak anew: importing may have gone higher than the work will."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main() -> None:
    parser = argparse.ArgumentParser(description="One measurement, in bytes; run by the others.")
    parser.add_argument("who", choices=["fwcrf", "pydensecrf"])
    parser.add_argument("picture")
    for name in ("width", "height", "channels", "threads"):
        parser.add_argument(name, type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    image = pictures.named(given.picture, given.width, given.height)
    print(json.dumps(growth(given.who, image, given.channels)))


if __name__ == "__main__":
    main()
