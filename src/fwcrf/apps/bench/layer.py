"""Time and memory of the layer, forward and backward, compared with one inference of pydensecrf.

Five steps of ``l2fw`` with learnable kernel weights, 500 x 375 pixels, 21 labels, gradients to the logits.
pydensecrf has no backward pass; its inference of five steps (both kernels, set-up included) is the unit.
crfasrnn_pytorch, the common layer on the CPU, takes about three units for forward and backward, so three
units divided by our time estimate the speed-up over it. Forward and backward are also timed separately: the
target for backward is at most 2.5 times forward.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from fwcrf import DenseCRF
from fwcrf.apps.bench import peer, peers, pictures
from fwcrf.apps.bench.memory import extra
from fwcrf.apps.bench.report import print_rows, table
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Case, Plan, Times, measure
from fwcrf.layer import LEARNABLE

LABELS, STEPS = 21, 5
BATCHES = (1, 4)
# Forward and backward of crfasrnn_pytorch, in pydensecrf inferences.
STAND_IN = 3.0
TARGETS = {1: 6.0, 2: 10.0}
NETWORK_TARGETS = {1: 12.0, 2: 20.0}
SETTINGS: dict[str, dict[str, object]] = {
    "l2fw": {"solver": "l2fw", "learnable": ("weights",)},
    "l2fw, a network's scores": {"solver": "l2fw", "learnable": ("weights",)},
    "mf": {"solver": "mf", "learnable": ("weights",)},
    "all matrices": {
        "learnable": ("weights", "compatibility", "lambda", "skip"), "weights": "full", "skip": 0.5,
    },
    "checkpoint": {"solver": "l2fw", "learnable": ("weights",), "gradient": "checkpoint"},
    "bandwidths": {"solver": "l2fw", "learnable": ("bandwidths",)},
    "everything but bandwidths": {
        "solver": "l2fw", "learnable": [name for name in LEARNABLE if name != "bandwidths"],
        "weights": "full", "skip": 0.5,
    },
    "everything learned": {"solver": "l2fw", "learnable": LEARNABLE, "weights": "full", "skip": 0.5},
}  # fmt: skip
DEFAULT = "l2fw, batch 1"  # the time of other settings is compared with it
ALWAYS = ("l2fw", "l2fw, a network's scores", "mf")  # the remaining settings are timed for batches of one


def prepared(
    setting: str,
    image: np.ndarray,
    batch: int,
    network: np.ndarray | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Callable[[], tuple[float, float]]:
    """A function that returns the seconds of a forward and of a backward pass."""
    layer = DenseCRF(LABELS, num_steps=STEPS, **SETTINGS[setting])  # type: ignore[arg-type]
    height, width = image.shape[:2]
    pixels = torch.from_numpy(image).permute(2, 0, 1).expand(batch, -1, -1, -1).float().contiguous()
    given = network if network is not None and "network" in setting else -peer.unary(image, LABELS)
    scores = torch.from_numpy(given).view(1, LABELS, height, width)
    logits = scores.repeat(batch, 1, 1, 1).requires_grad_()
    gradient = torch.ones_like(logits)

    def work() -> tuple[float, float]:
        start = clock()
        answer: Tensor = layer(pixels, logits)
        middle = clock()
        answer.backward(gradient)
        end = clock()
        logits.grad = None
        layer.zero_grad()
        return middle - start, end - middle

    return work


class Passes:
    """The work of a case. ``times`` records the seconds of each forward and backward pass."""

    def __init__(self, setting: str, picture: str, batch: int, clock: Callable[[], float]) -> None:
        self.passes: Callable[[], tuple[float, float]] = prepared(
            setting, pictures.named(picture), batch, pictures.network_scores(picture), clock
        )
        self.times: list[tuple[float, float]] = []

    def __call__(self) -> None:
        self.times.append(self.passes())


def measured(picture: str, plan: Plan) -> tuple[Times, dict[tuple[str, int], dict[str, float]]]:
    """Seconds per image of all cases, and the least milliseconds of forward and of backward."""
    image = pictures.named(picture)
    names = [(s, b) for s in SETTINGS for b in BATCHES if (b == 1 and not plan.quick) or s in ALWAYS]
    works = {(s, b, t): Passes(s, picture, b, plan.clock) for s, b in names for t in plan.threads}
    cases = [Case(f"{s}, batch {b}", lambda w=w: w, picture, t) for (s, b, t), w in works.items()]
    if peer.dcrf:
        unit = peers.available()["pydensecrf"].inference(image, peer.unary(image, LABELS), STEPS)
        cases.append(Case("pydensecrf", lambda: unit, picture))
    times = measure(cases, plan.rounds, plan.clock)
    apart = {}
    for (s, b, t), work in works.items():
        forward, backward = zip(*work.times[1:], strict=True)
        apart[f"{s}, batch {b}", t] = {"forward": 1e3 * min(forward), "backward": 1e3 * min(backward)}
        times[picture, f"{s}, batch {b}", t] = [value / b for value in times[picture, f"{s}, batch {b}", t]]
    return times, apart


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    plan = plan.at_most(2 if plan.quick else 5)
    times: Times = {}
    passes: dict[str, dict[tuple[str, int], dict[str, float]]] = {}
    for name in pictures.names(1 if plan.quick else None):
        found, passes[name] = measured(name, plan)
        times |= found
    cases = list(dict.fromkeys(case for _, case, _ in times if case != "pydensecrf"))
    unit = "pydensecrf, inference only"
    # In inferences of pydensecrf: aims are stated against STAND_IN of them.
    aims = {c: NETWORK_TARGETS if "network" in c else TARGETS for c in cases}
    wanted = [
        Compared(
            f"layer, forward and backward per image, {c}", c, {unit: "pydensecrf"},
            {t: aim / STAND_IN for t, aim in aims[c].items()},
        )
        for c in cases
    ]  # fmt: skip
    rows = assemble(spreads(times), wanted, plan.threads)
    print_rows(f"Layer, {STEPS} steps, {LABELS} labels", rows)
    print(f"\n### Speed-up over crfasrnn_pytorch, estimated as {STAND_IN:g} pydensecrf inferences\n")
    head = [
        "setting",
        "threads",
        "forward, ms",
        "backward, ms",
        "backward / forward",
        "times l2fw",
        "speed-up",
        "target",
    ]
    print(table(head, _passes(rows, passes, unit)))
    held_ = {} if plan.quick else {s: held(s, pictures.names()[0], max(plan.threads)) / 1e6 for s in SETTINGS}
    if held_:
        print("\n### Peak extra memory of forward and backward, one image, MB\n")
        print(table(["", "MB"], [[name, f"{value:.0f}"] for name, value in held_.items()]))
    return {"rows": rows, "passes": _plain(passes), "megabytes": held_}


def _passes(rows: list[Row], passes: dict, unit: str) -> list[list[str]]:
    lines = []
    for row in rows:
        case = row.what.split("per image, ")[1]
        each = [by_case[case, row.threads] for by_case in passes.values()]
        forward, backward = (statistics.median(e[key] for e in each) for key in ("forward", "backward"))
        first = [by_case[DEFAULT, row.threads] for by_case in passes.values()]
        times = (forward + backward) / statistics.median(e["forward"] + e["backward"] for e in first)
        speedup = f"{STAND_IN * row.ratio(unit).min:.1f}" if row.theirs else ""
        target = "" if row.target is None else f"{STAND_IN * row.target:g}"
        lines.append([case, str(row.threads), f"{forward:.0f}", f"{backward:.0f}",
                      f"{backward / forward:.2f}", f"{times:.2f}" if case.endswith(" 1") else "",
                      speedup, target])  # fmt: skip
    return lines


def _plain(passes: dict) -> dict[str, dict[str, dict[str, float]]]:
    return {name: {f"{c}; {t}": v for (c, t), v in each.items()} for name, each in passes.items()}


def held(setting: str, picture: str, threads: int) -> int:
    """Peak extra bytes, measured in a new process."""
    command = [sys.executable, "-m", "fwcrf.apps.bench.layer", setting, picture, str(threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure memory once, in bytes; called by the benchmark.")
    parser.add_argument("setting", choices=list(SETTINGS))
    parser.add_argument("picture")
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    image = pictures.named(given.picture)
    print(json.dumps(extra(lambda i: prepared(given.setting, i, 1), image)))


if __name__ == "__main__":
    main()
