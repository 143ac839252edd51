"""Refine rough scores of a photograph with a dense CRF, and print the energy after each step.

The scores come from a coarse colour model: blocks of 12 x 12 pixels are clustered by their mean
colour, and every pixel of a block gets the scores of the block. The CRF moves label borders to image edges.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from skimage import data

import fwcrf
from fwcrf.energy import unary_from_logits
from fwcrf.kernels import Bilateral, Spatial

PALETTE = np.array(
    [[27, 84, 140], [240, 190, 60], [190, 60, 50], [90, 160, 90], [230, 230, 220], [120, 80, 140]], np.uint8
)


def colour_clusters(colours: np.ndarray, count: int, rounds: int = 20) -> np.ndarray:
    """Centres of k-means; the initial centres are spread over the range of brightness."""
    start = np.argsort(colours.sum(-1))[np.linspace(0, len(colours) - 1, count).astype(int)]
    centres = colours[start]
    for _ in range(rounds):
        nearest = ((colours[:, None] - centres) ** 2).sum(-1).argmin(-1)
        centres = np.stack([colours[nearest == k].mean(0) for k in range(count)])
    return centres


def rough_logits(image: np.ndarray, count: int, block: int = 12) -> np.ndarray:
    """Scores (H, W, count) of a colour model on blocks of pixels."""
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((width // block, height // block), Image.Resampling.BOX)
    colours = np.asarray(small, np.float64).reshape(-1, 3)
    distance = ((colours[:, None] - colour_clusters(colours, count)) ** 2).sum(-1)
    scores = (-distance / (2 * 50.0**2)).reshape(small.height, small.width, count)
    rows = np.arange(height) * small.height // height
    columns = np.arange(width) * small.width // width
    return scores[rows][:, columns].astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photograph", default="astronaut", help="colour photograph in skimage.data")
    parser.add_argument("--labels", type=int, default=5)
    parser.add_argument("--solver", default="l2fw", choices=fwcrf.solvers.names())
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("-o", "--output", type=Path, default=Path("demo-output/refined.png"))
    args = parser.parse_args()

    image = getattr(data, args.photograph)()
    shape = image.shape[:2]
    logits = torch.from_numpy(rough_logits(image, args.labels)).flatten(0, 1)

    kernels = [Bilateral(xy=80, color=13, weight=5.0), Spatial(xy=3, weight=2.0)]
    pairwise = fwcrf.pairwise.of_image(kernels, image, args.labels)
    energy = fwcrf.Energy(pairwise, unary_from_logits(logits))

    labels = fwcrf.rounding.nearest(logits)
    print(f"{args.photograph}: {shape[1]} x {shape[0]} pixels, {args.labels} labels, solver {args.solver}\n")
    print("step   energy of labels   labels changed")

    def report(k: int, x: torch.Tensor) -> None:
        nonlocal labels
        now = fwcrf.rounding.nearest(x)
        changed = (now != labels).double().mean().item()
        labels = now
        print(f"{k:4d} {energy.of_labels(now).item():18.1f} {changed:15.2%}")

    with torch.no_grad():
        solution = fwcrf.minimize(energy, args.solver, num_steps=args.steps, callback=report)

    panels = [image]
    panels += [PALETTE[t.view(shape).numpy() % len(PALETTE)] for t in (logits.argmax(-1), solution.labels)]
    args.output.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.concatenate(panels, 1)).save(args.output)
    print(f"\ninput, scores' argmax, refined labels: {args.output}")


if __name__ == "__main__":
    main()
