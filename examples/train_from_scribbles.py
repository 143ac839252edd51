"""Train a small network from scribbles alone, with and without a CRF loss, and compare their mean IoU.

The images are made: objects of two kinds before a background, whose colours vary from object to object and
overlap between kinds, with shading and noise. The truth of training is one short stroke per kind and image,
and every pixel of other images judges the network.

Partial cross-entropy learns from the strokes alone. The CRF loss (``fwcrf.losses.energy``) and the gated CRF
loss (``gated_energy``) add a penalty for different labels at similar neighbours, which needs no truth. The
last row learns from all labels: the limit of any loss for weak supervision.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fwcrf import losses
from fwcrf.kernels import Bilateral

SIZE, KINDS, UNLABELLED = 64, 3, -100
COLOURS = np.array([[110, 120, 110], [165, 105, 95], [95, 105, 165]])
CRF_LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "scribbles: cross-entropy": None,
    "scribbles: + CRF loss": lambda image, p: losses.energy(image, p, [Bilateral(xy=12, color=25)]),
    "scribbles: + gated CRF loss": lambda image, p: losses.gated_energy(
        image, p, [Bilateral(xy=6, color=25)], radius=3
    ),
    "all labels: cross-entropy": None,
}


def scene(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """An image ``(SIZE, SIZE, 3)`` of two to four ellipses and rectangles, and its labels."""
    y, x = np.mgrid[:SIZE, :SIZE]
    labels = np.zeros((SIZE, SIZE), int)
    colours = np.tile(COLOURS[0] + rng.normal(0, 18, 3), (SIZE, SIZE, 1))
    for kind in (1, 2, 1, 2)[: rng.integers(2, 5)]:
        (cy, cx), (a, b), angle = rng.uniform(12, SIZE - 12, 2), rng.uniform(7, 16, 2), rng.uniform(0, np.pi)
        u = (x - cx) * np.cos(angle) + (y - cy) * np.sin(angle)
        v = (y - cy) * np.cos(angle) - (x - cx) * np.sin(angle)
        ellipse = (u / a) ** 2 + (v / b) ** 2 < 1
        inside = ellipse if rng.random() < 0.5 else (abs(u) < 0.85 * a) & (abs(v) < 0.85 * b)
        labels[inside] = kind
        colours[inside] = COLOURS[kind] + rng.normal(0, 18, 3)
    shade = ndimage.gaussian_filter(rng.normal(size=(SIZE, SIZE)), 8)
    noisy = colours + 10 * (shade / shade.std())[..., None] + rng.normal(0, 15, colours.shape)
    return noisy.clip(0, 255).astype(np.float32), labels


def scribbles(labels: np.ndarray, rng: np.random.Generator, length: int) -> np.ndarray:
    """Labels along one random walk in the pixels of each label, ``UNLABELLED`` elsewhere.

    A stroke starts well inside its region, as an annotator's does, and ends where it would leave it.
    """
    drawn = np.full_like(labels, UNLABELLED)
    for kind in np.unique(labels):
        depth = ndimage.distance_transform_edt(labels == kind)
        inside = np.argwhere(depth >= np.quantile(depth[depth > 0], 0.75))
        y, x = inside[rng.integers(len(inside))].astype(float)
        angle = rng.uniform(0, 2 * np.pi)
        for _ in range(length):
            row, column = round(y), round(x)
            inside_image = 0 <= row < labels.shape[0] and 0 <= column < labels.shape[1]
            if not inside_image or labels[row, column] != kind:
                break
            drawn[row, column] = kind
            angle += rng.normal(0, 0.2)
            y, x = y + np.sin(angle), x + np.cos(angle)
    return drawn


def network() -> nn.Module:
    """Three dilated convolutions, which see 15 x 15 pixels."""
    layers: list[nn.Module] = []
    for channels, dilation in ((3, 1), (16, 2), (16, 4)):
        layers += [
            nn.Conv2d(channels, 16, 3, padding=dilation, dilation=dilation),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Conv2d(16, KINDS, 1))


def trained(
    images: Tensor,
    target: Tensor,
    crf_loss: Callable[[Tensor, Tensor], Tensor] | None,
    *,
    seed: int,
    iterations: int,
    weight: float,
) -> nn.Module:
    """A network; all networks of a seed start alike and see the same images in the same order.

    The CRF loss begins after a third of the iterations: before, the labels that it would spread are random.
    """
    torch.manual_seed(seed)
    model, rng = network(), np.random.default_rng(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for k in range(iterations):
        chosen = rng.integers(len(images), size=4)
        scores = model(images[chosen] / 64 - 2)
        loss = cross_entropy(scores, target[chosen], ignore_index=UNLABELLED)
        if crf_loss is not None and 3 * k >= iterations:
            loss = loss + weight * crf_loss(images[chosen], scores.softmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def mean_iou(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Mean IoU over all images together, in percent."""
    found = model(images / 64 - 2).argmax(1)
    pairs = [(found == kind, labels == kind) for kind in range(KINDS)]
    return 100 * float(np.mean([float((a & b).sum() / (a | b).sum()) for a, b in pairs]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3, help="number of repetitions, with other images")
    parser.add_argument("--length", type=int, default=8, help="of a stroke, in pixels")
    parser.add_argument("--weight", type=float, default=1.0, help="of the CRF loss")
    args = parser.parse_args()

    torch.set_num_threads(1)  # the same sums, and so the same table, on every machine of a kind
    begin = time.process_time()
    found: dict[str, list[float]] = {name: [] for name in CRF_LOSSES}
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        scenes = [scene(rng) for _ in range(24)]
        images = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image, _ in scenes])
        labels = torch.stack([torch.from_numpy(truth) for _, truth in scenes])
        strokes = torch.stack(
            [torch.from_numpy(scribbles(truth, rng, args.length)) for _, truth in scenes[:12]]
        )
        for name, crf_loss in CRF_LOSSES.items():
            target = strokes if name.startswith("scribbles") else labels[:12]
            model = trained(
                images[:12], target, crf_loss, seed=seed, iterations=args.iterations, weight=args.weight
            )
            found[name].append(mean_iou(model, images[12:], labels[12:]))
    share = 100 * float((strokes != UNLABELLED).float().mean())
    print(f"{share:.2f} % of the pixels have a label, {args.iterations} iterations; held-out mean IoU in %")
    print(f"{'':30s}{'mean':>6s}" + "".join(f"   seed {seed}" for seed in range(args.seeds)))
    for name, values in found.items():
        print(f"{name:30s}{np.mean(values):6.1f}" + "".join(f"{value:9.1f}" for value in values))
    print(f"{time.process_time() - begin:.0f} s of one core")


if __name__ == "__main__":
    main()
