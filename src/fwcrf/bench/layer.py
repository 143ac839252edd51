"""Time and memory of the layer, forward and backward, beside one inference of pydensecrf in the same run.

Five steps of ``l2fw`` with learnable kernel weights, 500 x 375 pixels, 21 labels, gradients to the logits.
pydensecrf has no backward pass; its inference of five steps (both kernels, set-up included) is the unit.
crfasrnn_pytorch, the layer people use on the CPU, takes about three of these for forward and backward, so
that three units over our time stand for the speed-up over it. Both passes are timed apart: the target for
backward is at most 2.5 times forward.
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
from fwcrf.bench import peer, pictures
from fwcrf.bench.memory import extra
from fwcrf.bench.report import table

LABELS, STEPS = 21, 5
BATCHES = (1, 4)
# pydensecrf inferences that crfasrnn_pytorch takes for forward and backward.
STAND_IN = 3.0
TARGETS = {1: 6.0, 2: 10.0}
SETTINGS: dict[str, dict[str, object]] = {
    "l2fw": {"solver": "l2fw", "learnable": ("weights",)},
    "mf": {"solver": "mf", "learnable": ("weights",)},
    "all matrices": {
        "learnable": ("weights", "compatibility", "lambda", "skip"), "weights": "full", "skip": 0.5,
    },
    "checkpoint": {"solver": "l2fw", "learnable": ("weights",), "gradient": "checkpoint"},
    "bandwidths": {"solver": "l2fw", "learnable": ("bandwidths",)},
}  # fmt: skip
ALWAYS = ("l2fw", "mf")  # the others are timed for one image


def prepared(setting: str, image: np.ndarray, batch: int) -> Callable[[], tuple[float, float]]:
    """Seconds of a forward and of a backward pass."""
    layer = DenseCRF(LABELS, num_steps=STEPS, **SETTINGS[setting])  # type: ignore[arg-type]
    height, width = image.shape[:2]
    pixels = torch.from_numpy(image).permute(2, 0, 1).expand(batch, -1, -1, -1).float().contiguous()
    scores = torch.from_numpy(-peer.unary(image, LABELS)).view(1, LABELS, height, width)
    logits = scores.repeat(batch, 1, 1, 1).requires_grad_()
    gradient = torch.ones_like(logits)

    def work() -> tuple[float, float]:
        start = perf_counter()
        answer: Tensor = layer(pixels, logits)
        middle = perf_counter()
        answer.backward(gradient)
        end = perf_counter()
        logits.grad = None
        layer.zero_grad()
        return middle - start, end - middle

    return work


def peer_inference(image: np.ndarray) -> Callable[[], object]:
    energies = peer.unary(image, LABELS)

    def work() -> object:
        model = peer.model(image, energies, 0, 80, 13)
        model.addPairwiseGaussian(sxy=3, compat=1)
        model.addPairwiseBilateral(sxy=80, srgb=13, rgbim=image, compat=1)
        return model.inference(STEPS)

    return work


def measure(image: np.ndarray, rounds: int) -> dict[str, dict[str, float]]:
    """Least milliseconds of each case: forward, backward, and both per image."""
    cases = {(s, b): prepared(s, image, b) for s in SETTINGS for b in BATCHES if b == 1 or s in ALWAYS}
    unit = peer_inference(image) if peer.dcrf else None
    forward: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    backward: dict[tuple[str, int], list[float]] = {case: [] for case in cases}
    inference = []
    for turn in range(rounds + 1):
        if unit is not None:
            start = perf_counter()
            unit()
            inference.append(1000 * (perf_counter() - start))
        for case, work in cases.items():
            times = work()
            if turn:  # the first round fills caches and starts threads
                forward[case].append(1000 * times[0])
                backward[case].append(1000 * times[1])
    results = {
        f"{name}, batch {batch}": {
            "forward": min(forward[name, batch]),
            "backward": min(backward[name, batch]),
            "per image": (min(forward[name, batch]) + min(backward[name, batch])) / batch,
        }
        for name, batch in cases
    }
    if inference:
        results["pydensecrf"] = {"per image": min(inference[1:])}
    return results


def run(rounds: int = 5, threads: tuple[int, ...] = (1, 2)) -> dict[str, object]:
    """Measure, print, and return everything."""
    rounds = min(rounds, 5)
    images = {name: pictures.named(name) for name in pictures.names()}
    before = torch.get_num_threads()
    results: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    try:
        for count in threads:
            torch.set_num_threads(count)
            results[str(count)] = {name: measure(image, rounds) for name, image in images.items()}
            print(f"\n### Layer, {STEPS} steps, {LABELS} labels, threads: {count}, least of {rounds}\n")
            print(_times(results[str(count)], count))
    finally:
        torch.set_num_threads(before)
    memory = {s: held(s, next(iter(images)), max(threads)) / 1e6 for s in SETTINGS}
    print("\n### Peak extra memory of forward and backward, one image, MB\n")
    print(table(["", "MB"], [[name, f"{value:.0f}"] for name, value in memory.items()]))
    return {"milliseconds": results, "megabytes": memory}


def held(setting: str, picture: str, threads: int) -> int:
    """Peak extra bytes, in a fresh process."""
    command = [sys.executable, "-m", "fwcrf.bench.layer", setting, picture, str(threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def _times(by_picture: dict[str, dict[str, dict[str, float]]], threads: int) -> str:
    """Medians over the pictures."""
    rows = []
    for case in next(iter(by_picture.values())):
        if case == "pydensecrf":
            continue
        each = [results[case] for results in by_picture.values()]
        columns = ("forward", "backward", "per image")
        middle = [f"{statistics.median(e[key] for e in each):.0f}" for key in columns]
        share = f"{statistics.median(e['backward'] / e['forward'] for e in each):.2f}"
        units = speedup = ""
        if peer.dcrf:
            ratios = [r["pydensecrf"]["per image"] / r[case]["per image"] for r in by_picture.values()]
            units = f"{1 / statistics.median(ratios):.2f}"
            speedup = f"{STAND_IN * statistics.median(ratios):.1f}"
        rows.append([case, *middle, share, units, speedup, TARGETS.get(threads, "")])
    head = ["setting", "forward", "backward", "both, per image", "backward / forward"]
    return table([*head, "in pydensecrf inferences", "over crfasrnn_pytorch (stand-in)", "target"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="One measurement of memory, in bytes; run by the others.")
    parser.add_argument("setting", choices=list(SETTINGS))
    parser.add_argument("picture")
    parser.add_argument("threads", type=int)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    image = pictures.named(given.picture)
    print(json.dumps(extra(lambda i: prepared(given.setting, i, 1), image)))


if __name__ == "__main__":
    main()
