"""Programs run with pydensecrf and with the drop-in: model, two kernels, ten steps, marginals."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from types import ModuleType
from typing import Any

import numpy as np

from fwcrf.apps.bench import peer, pictures
from fwcrf.apps.bench.report import print_rows
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Spread, Times, measure
from fwcrf.pydensecrf import densecrf

STEPS = 10
LEAST_PIXELS = 20_000  # of one timing: small images are repeated


def penalties(labels: int) -> np.ndarray:
    """A compatibility matrix: 0 on the diagonal, 7 to 10 elsewhere, increasing with |i - j|."""
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels)))
    return np.where(apart, 7 + 3 * apart / labels, 0).astype(np.float32)


@dataclass(frozen=True)
class Settings:
    """A program as clients of pydensecrf write it. Bandwidths in pixels, and in levels for ``srgb``."""

    labels: int = 21
    gaussian: float = 3  # sxy of addPairwiseGaussian
    bilateral: tuple[float, float] = (80, 13)  # sxy and srgb of addPairwiseBilateral
    matrix: bool = False
    size: tuple[int, int] = (pictures.WIDTH, pictures.HEIGHT)
    target: tuple[float, float] | None = (3, 5)  # ratios on one and on two threads

    def __str__(self) -> str:
        (width, height), (sxy, srgb) = self.size, self.bilateral
        matrix = ", a matrix" * self.matrix
        return f"{width} x {height}, {self.labels} labels{matrix}, {self.gaussian:g} and {sxy:g}/{srgb:g}"


# 3 and 80/13 are the settings of pydensecrf's own example, 1 and 67/3 of many weakly supervised pipelines.
COPIED: dict[str, Any] = {"gaussian": 1, "bilateral": (67, 3)}
PROGRAMS = [
    Settings(target=(5, 8)),
    Settings(labels=2),
    Settings(matrix=True),
    Settings(**COPIED),
    Settings(labels=2, **COPIED),
    Settings(labels=2, bilateral=(5, 3)),
    Settings(size=(321, 321), **COPIED),
    Settings(size=(64, 64)),
    Settings(size=(64, 64), **COPIED),
    Settings(labels=2, size=(64, 64), **COPIED),
    Settings(size=(32, 32), target=None),
    Settings(size=(8, 8), target=(1, 1)),
    Settings(labels=2, size=(8, 8), target=(1, 1), **COPIED),
]
QUICK = [Settings(), Settings(labels=2, **COPIED), Settings(size=(8, 8))]


def program(dcrf: ModuleType, image: np.ndarray, unary: np.ndarray, settings: Settings) -> np.ndarray:
    """The marginals of one run."""
    height, width = image.shape[:2]
    sxy, srgb = settings.bilateral
    compat = penalties(settings.labels) if settings.matrix else 10
    crf = dcrf.DenseCRF2D(width, height, len(unary))
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=settings.gaussian, compat=3)
    crf.addPairwiseBilateral(sxy=sxy, srgb=srgb, rgbim=image, compat=compat)
    return np.array(crf.inference(STEPS))


def timed(dcrf: ModuleType, picture: str, settings: Settings) -> Callable[[], object]:
    """The program as often as it has to run for a time that a clock can read."""
    image = pictures.cut(pictures.named(picture), *settings.size)
    unary = peer.unary(image, settings.labels)
    times = max(1, LEAST_PIXELS // (image.shape[0] * image.shape[1]))

    def work() -> None:
        for _ in range(times):
            program(dcrf, image, unary, settings)

    return work


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    programs = QUICK if plan.quick else PROGRAMS
    rows = []
    for settings in programs:
        rows += _rows(settings, plan.at_most(5))
    print_rows("A program for pydensecrf, unchanged; processor time on one thread", rows)
    starts = _starts(plan.at_most(5))
    print_rows("Import and the first inference of 64 x 64 pixels in a new process; processor time", starts)
    return {"rows": rows + starts}


def _rows(settings: Settings, plan: Plan) -> list[Row]:
    """One row per number of threads: processor time on one thread, which a busy machine disturbs less."""
    found: Times = {}
    names = pictures.names(1 if plan.quick else 3)
    for count in plan.threads:
        cases = []
        for name in names:
            prepare = partial(timed, densecrf, name, settings)
            cases.append(Case("ours", _once(prepare), name, count))
            if peer.dcrf:
                cases.append(Case("theirs", _once(partial(timed, peer.dcrf, name, settings)), name, count))
        clock = {"clock": process_time} if count == 1 else {}
        found |= measure(cases, plan.rounds, **clock)
    target = dict(zip((1, 2), settings.target or (), strict=False))
    wanted = Compared(f"drop-in, {STEPS} steps, {settings}", "ours", {"pydensecrf": "theirs"}, target)
    return assemble(spreads(found), [wanted], plan.threads)


def _once(prepare: Callable[[], Callable[[], object]]) -> Callable[[], Callable[[], object]]:
    """``prepare``, with its result kept for later rounds."""
    kept: list[Callable[[], object]] = []

    def again() -> Callable[[], object]:
        if not kept:
            kept.append(prepare())
        return kept[0]

    return again


# In a new process; prints its processor time.
START = """
import time
import numpy as np
import {package}.densecrf as dcrf
from {package} import utils
crf = dcrf.DenseCRF2D(64, 64, 21)
crf.setUnaryEnergy(utils.unary_from_softmax(np.full((21, 64, 64), 1 / 21, np.float32)))
crf.addPairwiseGaussian(sxy=3, compat=3)
image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
crf.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=10)
np.array(crf.inference(10))
print(time.process_time())
"""


def start_time(package: str) -> float:
    """Seconds of processor time from the start of Python to the first marginals."""
    code = START.format(package=package)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _starts(plan: Plan) -> list[Row]:
    packages = {"ours": "fwcrf.pydensecrf"} | ({"theirs": "pydensecrf"} if peer.dcrf else {})
    taken: dict[str, list[float]] = {who: [] for who in packages}
    for _ in range(plan.rounds):
        for who, package in packages.items():
            taken[who].append(1e3 * start_time(package))
    each = {who: {"": Spread(min(values), statistics.median(values))} for who, values in taken.items()}
    theirs = {"pydensecrf": each["theirs"]} if peer.dcrf else {}
    return [Row("drop-in, import and first inference", 1, "ms", each["ours"], theirs)]
