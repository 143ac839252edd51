"""Train a small network from scribbles alone, with and without a CRF loss, and compare their mean IoU.

The task is the task of ``train_small.py``: the colour region of every pixel in scikit-image's photographs. Here
the truth of training is a few short strokes per photograph. The network sees crops of the left two thirds of
each photograph, and is judged by the right third, where every pixel counts.

Partial cross-entropy learns from the strokes alone. The CRF loss (``fwcrf.losses.energy``) and the gated CRF
loss (``gated_energy``) add a penalty for different labels at similar neighbours, which needs no truth. The last
row learns from all labels: the limit of any loss for weak supervision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor
from torch.nn.functional import cross_entropy
from train_small import REGIONS, Coarse, crops, mean_iou, photographs, regions

from fwcrf import losses
from fwcrf.kernels import Bilateral

UNLABELLED = -100
KERNEL = Bilateral(xy=12, color=16)
CRF_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "scribbles: cross-entropy": None,
    "scribbles: + CRF loss": lambda image, p: losses.energy(image, p, [KERNEL]),
    "scribbles: + gated CRF loss": lambda image, p: losses.gated_energy(image, p, [KERNEL], radius=5),
    "all labels: cross-entropy": None,
}


def scribbles(labels: np.ndarray, rng: np.random.Generator, strokes: int, length: int) -> np.ndarray:
    """Labels along ``strokes`` random walks in each region, ``UNLABELLED`` elsewhere.

    A stroke starts well inside its region, as an annotator's does, and ends where it would leave it.
    """
    drawn = np.full_like(labels, UNLABELLED)
    height, width = labels.shape
    for region in np.unique(labels):
        depth = ndimage.distance_transform_edt(labels == region)
        inside = np.argwhere(depth >= np.quantile(depth[depth > 0], 0.75))
        for start in inside[rng.integers(len(inside), size=strokes)]:
            angle, (y, x) = rng.uniform(0, 2 * np.pi), start.astype(float)
            for _ in range(length):
                row, column = round(y), round(x)
                if not (0 <= row < height and 0 <= column < width) or labels[row, column] != region:
                    break
                drawn[row, column] = region
                angle += rng.normal(0, 0.2)
                y, x = y + np.sin(angle), x + np.cos(angle)
    return drawn


def trained(
    images: list[Tensor],
    target: list[Tensor],
    crf_loss: Callable[[Tensor, Tensor], Tensor] | None,
    *,
    seed: int,
    iterations: int,
    weight: float,
) -> Coarse:
    """A network trained on random crops; all networks of a seed start alike and see the same crops."""
    torch.manual_seed(seed)
    network, rng = Coarse(), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(iterations):
        image, truth = crops(images, target, 4, rng)
        scores = network(image)
        labelled = (truth != UNLABELLED).sum()
        # The sum over labelled pixels: a crop may have none, and its mean would be NaN.
        loss = cross_entropy(scores, truth, ignore_index=UNLABELLED, reduction="sum") / labelled.clamp(min=1)
        if crf_loss is not None:
            loss = loss + weight * crf_loss(image, scores.softmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3, help="number of repetitions, with other scribbles")
    parser.add_argument("--strokes", type=int, default=3, help="per region and photograph")
    parser.add_argument("--length", type=int, default=15, help="of a stroke, in pixels")
    parser.add_argument("--weight", type=float, default=1.0, help="of the CRF loss")
    args = parser.parse_args()

    begin = time.perf_counter()
    pictures = photographs()
    truth = regions(pictures)
    images = [torch.from_numpy(p).permute(2, 0, 1).float() for p in pictures]
    labels = [torch.from_numpy(t) for t in truth]
    found: dict[str, list[float]] = {name: [] for name in CRF_LOSSES}
    share = []
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        drawn = [torch.from_numpy(scribbles(t, rng, args.strokes, args.length)) for t in truth]
        share.append(np.mean([float((d != UNLABELLED).float().mean()) for d in drawn]))
        for name, crf_loss in CRF_LOSSES.items():
            target = drawn if name.startswith("scribbles") else labels
            network = trained(
                images, target, crf_loss, seed=seed, iterations=args.iterations, weight=args.weight
            )
            found[name].append(mean_iou(network, images, labels))
    print(f"{100 * np.mean(share):.2f} % of the pixels have a label, {args.iterations} iterations, held-out mean IoU in %")
    print(f"{'':32s}{'mean':>6s}   " + "".join(f"seed {seed:<4d}" for seed in range(args.seeds)))
    for name, values in found.items():
        print(f"{name:32s}{100 * np.mean(values):6.1f}   " + "".join(f"{100 * v:<9.1f}" for v in values))
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
