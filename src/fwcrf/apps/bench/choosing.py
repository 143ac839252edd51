"""Effects of the choice of a solver: labels and time after training, gradients in training.

The kernel settings are chosen by hand and equal for all solvers. The images are from the second half of the
VOC list, and all frames of CamVid with stored scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import fwcrf
from fwcrf.apps.bench.anneal import Scene, scene
from fwcrf.apps.bench.pictures import data
from fwcrf.apps.bench.report import table
from fwcrf.apps.bench.timing import Plan
from fwcrf.apps.evaluation import Confusion
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.kernel import Kernel
from fwcrf.torch_ops.printed import in_one_line

VOC_IMAGES = 16


class DataSet(NamedTuple):
    """Constants of a data set."""

    num_labels: int
    ignored: int
    kernels: list[Kernel]
    thin: list[int]  # labels of objects a few pixels wide

    __repr__ = in_one_line


SETS = {
    "voc": DataSet(21, 255, [Spatial(3, weight=3.0), Bilateral(50, 5, weight=5.0)], []),
    "camvid": DataSet(11, 11, [Spatial(3, weight=1.0), Bilateral(30, 5, weight=2.0)], [2, 6, 9]),
}
# By displayed name: solver, number of steps, rounding.
WAYS = {
    "`mf`, 10 steps": ("mf", 10, "nearest"),
    "`fw`, 10 steps": ("fw", 10, "nearest"),
    "`efw`, 10 steps": ("efw", 10, "nearest"),
    "`l2fw`, 10 steps": ("l2fw", 10, "nearest"),
    "`l2fw`, 10 steps, `bcd`": ("l2fw", 10, "bcd"),
    "`l2fw`, 5 steps": ("l2fw", 5, "nearest"),
    "`anneal-fw`, 5 steps": ("anneal-fw", 5, "nearest"),
}


def scenes(kind: str) -> Iterator[tuple[Scene, Tensor]]:
    """Yield images with scores, and their true labels."""
    if kind == "voc":
        names = (data() / "voc2012/val.txt").read_text(encoding="utf-8").split()
        names = names[len(names) // 2 :][:: len(names) // 2 // VOC_IMAGES][:VOC_IMAGES]
        folder = data() / "voc2012/val/labels"
    else:
        names = sorted(path.stem for path in (data() / "camvid/test/logits_espnet").glob("*.npz"))
        folder = data() / "camvid/test/labels"
    for name in names:
        with Image.open(folder / f"{name}.png") as truth:
            yield scene(kind, name), torch.from_numpy(np.array(truth)).long()


@torch.no_grad()
def after_training(kind: str) -> dict[str, dict[str, float]]:
    """Mean IoU, accuracy, energy per pixel minus that of the scores' labels, and seconds, by way."""
    chosen = SETS[kind]
    counts = {way: Confusion(chosen.num_labels, chosen.ignored) for way in ["scores alone", *WAYS]}
    lowered, seconds = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0.0)
    images = 0
    for (_, image, logits), truth in scenes(kind):
        images += 1
        crf = fwcrf.DenseCRF(chosen.num_labels, chosen.kernels)
        picture = torch.from_numpy(image).permute(2, 0, 1).contiguous()
        E = crf.energy(picture, logits)
        alone = E.of_labels(E.unary.argmin(-1))
        counts["scores alone"].update(logits.argmax(0), truth)
        for way, (name, num_steps, rounding) in WAYS.items():
            settings = {"steps": num_steps} if name == "anneal-fw" else {}
            solver = fwcrf.solvers.get(name, **settings)
            start = process_time()
            found = crf.solve(picture, logits, solver=solver, num_steps=num_steps, rounding=rounding)
            labels = found.labels
            seconds[way] += process_time() - start
            lowered[way] += float((alone - found.energy) / labels.numel())
            counts[way].update(labels, truth)
    return {
        way: {
            "mean IoU": 100 * c.mean_iou(c.present()),
            "thin": 100 * c.mean_iou(chosen.thin) if chosen.thin else float("nan"),
            "accuracy": 100 * c.accuracy(),
            "energy": -lowered[way] / images,
            "seconds": seconds[way] / images,
        }
        for way, c in counts.items()
    }


def while_training(kind: str = "voc", count: int = 3) -> dict[str, dict[str, float]]:
    """Seconds of forward and backward with five steps, and percent of pixels with a non-zero gradient."""
    found: dict[str, dict[str, float]] = {}
    examples = [next_ for next_, _ in zip(scenes(kind), range(count), strict=False)]
    for solver in ("fw", "l2fw", "efw", "mf"):
        for skip in (0.0, 0.5):
            forward = backward = moved = 0.0
            for (_, image, logits), truth in examples:
                crf = fwcrf.DenseCRF(SETS[kind].num_labels, SETS[kind].kernels, solver=solver, skip=skip)
                picture = torch.from_numpy(image).permute(2, 0, 1).contiguous()[None]
                z = logits[None].clone().requires_grad_()
                start = process_time()
                answer = crf(picture, z)
                middle = process_time()
                if answer.requires_grad:
                    loss = torch.nn.functional.nll_loss(answer, truth[None], ignore_index=SETS[kind].ignored)
                    (gradient,) = torch.autograd.grad(loss, z)
                    backward += process_time() - middle
                    valid = truth != SETS[kind].ignored
                    moved += float((gradient[0].abs().amax(0) > 0)[valid].double().mean())
                forward += middle - start
            found[f"`{solver}`, `skip={skip}`"] = {
                "forward": forward / count, "backward": backward / count, "moved": 100 * moved / count
            }  # fmt: skip
    return found


def run(plan: Plan) -> dict[str, object]:
    """Run the benchmark, print its tables and return all results."""
    if not (data() / "voc2012/val/logits_deeplabv3").exists():
        print(f"\nskipped: no data in {data()}; set FWCRF_DATA to the folder with voc2012 and camvid")
        return {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results: dict[str, object] = {}
    for kind in SETS:
        found = after_training(kind)
        results[kind] = found
        print(f"\n### {kind}\n")
        head = ["", "mean IoU", "thin", "accuracy", "energy per pixel", "seconds"]
        columns = ("mean IoU", "thin", "accuracy", "energy", "seconds")
        print(table(head, [[way, *(f"{row[c]:.2f}" for c in columns)] for way, row in found.items()]))
    trained = while_training()
    results["training"] = trained
    print("\n### training\n")
    head = ["", "forward, s", "backward, s", "pixels with a gradient, %"]
    rows = [
        [way, *(f"{row[c]:.2f}" for c in ("forward", "backward", "moved"))] for way, row in trained.items()
    ]
    print(table(head, rows))
    torch.set_num_threads(threads)
    return results
