"""Refine a network's scores for a photograph, print the change and draw it.

The photographs are scikit-image's, and the scores are stored in fwcrf.examples: nothing is downloaded. A
network gives one score for every eighth pixel. The CRF moves the borders of the labels to edges of the image.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import fwcrf
from fwcrf import examples

TITLES = ("photograph", "network", "refined", "changed")


def contrast(image: np.ndarray, labels: np.ndarray) -> float:
    """Mean difference in grey levels of neighbouring pixels with different labels; 0 without such pixels."""
    values = image.reshape(*labels.shape, -1).astype(float)
    jumps = [np.abs(np.diff(values, axis=axis)).mean(-1)[np.diff(labels, axis=axis) != 0] for axis in (0, 1)]
    across = np.concatenate(jumps)
    return float(across.mean()) if across.size else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photograph", default="rocket", choices=examples.NAMES)
    parser.add_argument("--preset", default="default", choices=fwcrf.presets.names())
    parser.add_argument("--solver", choices=fwcrf.solvers.names(), help="default: the preset's")
    parser.add_argument("--steps", type=int, help="default: the preset's")
    parser.add_argument("-o", "--output", type=Path, default=Path("demo-output/refined.png"))
    args = parser.parse_args()

    image, logits, names = examples.load(args.photograph)
    before = logits.argmax(-1)
    given = {name: v for name, v in (("solver", args.solver), ("num_steps", args.steps)) if v is not None}
    after = fwcrf.refine(image, logits, from_logits=True, preset=args.preset, **given)

    size = " x ".join(map(str, before.shape))
    preset = fwcrf.presets.get(args.preset)
    steps, solver = given.get("num_steps", preset.num_steps), given.get("solver", preset.solver["name"])
    print(f"{args.photograph}: {size} pixels, {len(names)} labels, {steps} steps of {solver}")
    print(f"\n{'':28}{'network':>10}{'refined':>10}")
    for label in np.union1d(before, after):
        counts = [np.count_nonzero(labels == label) for labels in (before, after)]
        print(f"{'pixels of ' + names[label]:28}{counts[0]:10}{counts[1]:10}")
    levels = [contrast(image, labels) for labels in (before, after)]
    print(f"{'grey levels across borders':28}{levels[0]:10.1f}{levels[1]:10.1f}")
    print(f"\n{np.mean(before != after):.1%} of the labels changed")

    matplotlib.use("Agg")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    fwcrf.plot.before_after(image, before, after, names=names, titles=TITLES).savefig(args.output, dpi=120)
    print(f"picture: {args.output}")


if __name__ == "__main__":
    main()
