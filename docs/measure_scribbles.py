"""Train a network from scribbles on photographs, with and without a CRF loss; write the table of losses.md.

    FWCRF_DATA=DATA python docs/measure_scribbles.py --output FOLDER

CamVid at a third of its size: strokes are drawn along the true labels of the training images, and a small
network starts from random weights. Weights of the CRF losses are chosen on the validation images with a seed
of their own; the test images judge the choice with other seeds. Every run is kept.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from measuring.pages import DOCS
from measuring.records import record
from measuring.scenes import DATA
from torch import Tensor, nn

from fwcrf import losses
from fwcrf.apps.data.folder import Splits
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments.joint_scores import mean_iou
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.tables import Row
from fwcrf.apps.experiments.verdict import Interval, above, equally
from fwcrf.kernels import Bilateral

SMALLER, LABELS, VOID = 3, 11, 11
LENGTH = 12  # of a stroke, in pixels
BATCH, RATE = 6, 0.004
CHOOSING_SEED, SEEDS = 100, (0, 1, 2)
WEIGHTS = (0.1, 0.3, 1.0)
CLOSE, FULL = "cross-entropy", "all labels: cross-entropy"
CRF_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+ CRF loss": lambda image, p: losses.energy(image, p, [Bilateral(xy=20, color=15)]),
    "+ gated CRF loss": lambda image, p: losses.gated_energy(image, p, [Bilateral(xy=6, color=15)], radius=3),
}

_spec = importlib.util.spec_from_file_location(
    "train_from_scribbles", DOCS.parent / "examples" / "train_from_scribbles.py"
)
assert _spec is not None and _spec.loader is not None
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


@cache
def images_of(split: str) -> tuple[Tensor, Tensor]:
    """Images ``(N, 3, h, w)`` and labels ``(N, h, w)``, ``UNLABELLED`` where there is no truth."""
    data = Splits(DATA / "camvid", split)
    pairs = [data[k] for k in range(len(data))]
    images = F.avg_pool2d(torch.stack([image for image, _ in pairs]).float(), SMALLER)
    labels = torch.stack([truth for _, truth in pairs])[:, SMALLER // 2 :: SMALLER, SMALLER // 2 :: SMALLER]
    return images, torch.where(labels == VOID, example.UNLABELLED, labels)


@cache
def strokes() -> Tensor:
    """One stroke per class of each training image."""
    rng = np.random.default_rng(0)
    return torch.stack(
        [torch.from_numpy(example.scribbles(labels.numpy(), rng, LENGTH)) for labels in images_of("train")[1]]
    )


class Network(nn.Module):
    """Six convolutions at a quarter of the resolution, which see 133 x 133 pixels; logits are enlarged."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        shapes = ((3, 24, 2, 1), (24, 48, 2, 1), *((48, 48, 1, d) for d in (1, 2, 4, 8)))
        for into, out, stride, dilation in shapes:
            layers += [
                nn.Conv2d(into, out, 3, stride, dilation, dilation, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers, nn.Conv2d(48, LABELS, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits = self.layers(images / 64 - 2)
        return F.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)


def trained(loss: str, weight: float, seed: int, iterations: int) -> nn.Module:
    """A network; networks of a seed start alike and see the same images in the same order."""
    torch.manual_seed(seed)
    model, rng = Network(), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    images, truth = images_of("train")
    target = truth if loss == FULL else strokes()
    for k in range(iterations):
        chosen = rng.integers(len(images), size=BATCH)
        flipped = [-1] if rng.random() < 0.5 else []
        some, wanted = images[chosen].flip(flipped), target[chosen].flip(flipped)
        scores = model(some)
        total = F.cross_entropy(scores, wanted, ignore_index=example.UNLABELLED)
        # As in the example: before a third of the iterations, the labels that it would spread are random.
        if loss in CRF_LOSSES and 3 * k >= iterations:
            total = total + weight * CRF_LOSSES[loss](some, scores.softmax(1))
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def counts(model: nn.Module, split: str) -> list[list[int]]:
    """The confusion matrix of each image, flat."""
    found = []
    for image, truth in zip(*images_of(split), strict=True):
        confusion = Confusion(LABELS, example.UNLABELLED)
        confusion.update(model(image[None]).max(1).indices, truth[None])
        found.append(confusion.matrix.flatten().tolist())
    return found


def measured(kept: Kept, loss: str, weight: float, seed: int, split: str, iterations: int) -> Tensor:
    """Confusion matrices ``(images, L, L)`` of a run, which is trained unless it is kept."""
    key = json.dumps([loss, weight, seed, split, iterations])
    if key not in kept:
        kept[key] = counts(trained(loss, weight, seed, iterations), split)
        print(key, f"{score([torch.tensor(kept[key]).view(-1, LABELS, LABELS)]):.2f}", flush=True)
    return torch.tensor(kept[key]).view(-1, LABELS, LABELS)


def score(runs: Sequence[Tensor]) -> float:
    return float(np.mean([float(mean_iou(equally(len(r)), r, range(LABELS))) for r in runs]))


def gain(runs: Sequence[Tensor], over: Sequence[Tensor]) -> Interval:
    """The difference in mean IoU, with an interval over images and seeds."""

    def each(shares: Tensor) -> Tensor:
        pairs = zip(runs, over, strict=True)
        scores = [[mean_iou(shares, r, range(LABELS)) for r in pair] for pair in pairs]
        return torch.stack([one - other for one, other in scores])

    size = len(runs[0])
    return above(lambda shares: each(shares).mean(0), size, runs=each(equally(size))[:, 0][None])


def main() -> None:
    reader = argparse.ArgumentParser(description="Train from scribbles on photographs.")
    reader.add_argument("--output", type=Path, required=True, help="folder of kept runs")
    reader.add_argument("--iterations", type=int, default=250)
    given = reader.parse_args()
    torch.set_num_threads(1)
    given.output.mkdir(parents=True, exist_ok=True)
    kept = Kept(given.output / "scribbles.json", "scribbles")

    def runs(loss: str, weight: float, seeds: Sequence[int], split: str) -> list[Tensor]:
        return [measured(kept, loss, weight, seed, split, given.iterations) for seed in seeds]

    best = {
        loss: max(WEIGHTS, key=lambda w, loss=loss: score(runs(loss, w, [CHOOSING_SEED], "val")))
        for loss in CRF_LOSSES
    }
    compared = [(CLOSE, 0.0), *best.items(), (FULL, 0.0)]
    found = {loss: runs(loss, weight, SEEDS, "test") for loss, weight in compared}
    rows: list[Row] = []
    for loss, weight in compared:
        each = {f"seed {seed}": score([run]) for seed, run in zip(SEEDS, found[loss], strict=True)}
        of = gain(found[loss], found[CLOSE])
        ends = [None] * 3 if loss == CLOSE else [of.value, of.low, of.high]
        ahead = dict(zip(("gain", "low", "high"), ends, strict=True))
        rows.append({"loss": loss, "weight": weight or None, "mean IoU": score(found[loss])} | each | ahead)
    record("scribbles", rows)
    share = 100 * float((strokes() != example.UNLABELLED).float().mean())
    print(f"{share:.2f} % of the training pixels have a label.")


if __name__ == "__main__":
    main()
