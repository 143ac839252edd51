"""Draw the pictures of the README and of docs/gallery.md: refined labels of photographs, and failures.

The labels are the result of refine with its defaults, for the stored scores of fwcrf.examples.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from refine_photograph import TITLES

import fwcrf
from fwcrf import examples, plot

# The part of the rocket's photograph that opens the README.
OPENING = np.s_[105:427, 150:510]
# Parts of photographs where labels stay wrong or get worse.
FAILURES = {
    "flag": ("astronaut", np.s_[0:200, 0:260]),
    "towers": ("rocket", np.s_[227:427, 30:290]),
    "wood": ("coffee", np.s_[230:400, 0:220]),
    "chin": ("chelsea", np.s_[170:300, 280:451]),
}
QUALITY = {"quality": 85, "optimize": True}


class Gallery:
    """The folder of the pictures, and the labels of each photograph before and after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refined: dict[str, tuple[np.ndarray, ...]] = {}

    def labels(self, name: str) -> tuple[np.ndarray, ...]:
        """Photograph, labels of the network, refined labels."""
        if name not in self.refined:
            image, logits, _ = examples.load(name)
            self.refined[name] = image, logits.argmax(-1), fwcrf.refine(image, logits, from_logits=True)
        return self.refined[name]

    def draw(self, called: str, name: str, part: tuple[slice, slice] = np.s_[:, :]) -> None:
        """A row of four panels: a part of a photograph, labels before and after, changed pixels."""
        image, before, after = (one[part] for one in self.labels(name))
        names = examples.load(name, upsample=False).names
        titles = (*TITLES[:3], f"{TITLES[3]}: {np.mean(before != after):.1%}")
        self.save(
            f"gallery-{called}.jpg", plot.before_after(image, before, after, names=names, titles=titles)
        )

    def opening(self) -> None:
        """A row of three large panels, without a legend."""
        image, *maps = (one[OPENING] for one in self.labels("rocket"))
        figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
        for ax, labels, title in zip(axes, (np.zeros_like(maps[0]), *maps), TITLES, strict=False):
            plot.overlay(image, labels, ax=ax).set_title(title)
            if ax.get_legend():
                ax.get_legend().remove()
        self.save("refined.jpg", figure)

    def save(self, file: str, figure: matplotlib.figure.Figure) -> None:
        path = self.folder / file
        figure.savefig(path, dpi=100, pil_kwargs=QUALITY)
        plt.close(figure)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--folder", type=Path, default=Path("docs/assets"))
    parser.add_argument("--only", choices=("refined", *examples.NAMES, *FAILURES), help="one picture")
    args = parser.parse_args()
    matplotlib.use("Agg")
    args.folder.mkdir(parents=True, exist_ok=True)
    gallery = Gallery(args.folder)
    if args.only in (None, "refined"):
        gallery.opening()
    wholes = {name: (name, np.s_[:, :]) for name in examples.NAMES}
    for called, (name, part) in (wholes | FAILURES).items():
        if args.only in (None, called):
            gallery.draw(called, name, part)


if __name__ == "__main__":
    main()
