"""Draw the effect of each parameter: one strip of pictures per parameter, for docs/parameters.md.

Each picture refines the rough scores of a colour model for a part of a photograph, with one setting changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from skimage import data

import fwcrf
from fwcrf.kernels import Bilateral, Spatial

PALETTE = np.array(
    [[27, 84, 140], [240, 190, 60], [190, 60, 50], [90, 160, 90], [230, 230, 220], [120, 80, 140]], np.uint8
)
CAPTION = 22
WIDTH = 236


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


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Returns a photograph of a face, and logits with block edges and noise."""
    image = data.astronaut()
    logits = 1.5 * rough_logits(image, 4)
    logits += np.random.default_rng(0).normal(0, 0.3, logits.shape)
    part = np.s_[0:260, 90:350]
    return np.ascontiguousarray(image[part]), logits[part].astype(np.float32)


def panel(picture: np.ndarray, caption: str) -> np.ndarray:
    """A picture with its caption on top."""
    height = round(picture.shape[0] * WIDTH / picture.shape[1])
    drawn = Image.new("RGB", (WIDTH, height + CAPTION), "white")
    drawn.paste(Image.fromarray(picture).resize((WIDTH, height), Image.Resampling.LANCZOS), (0, CAPTION))
    ImageDraw.Draw(drawn).text((4, 2), caption, fill="black", font=ImageFont.load_default(14))
    return np.asarray(drawn)


def strip(path: Path, panels: list[np.ndarray]) -> None:
    gap = np.full((len(panels[0]), 4, 3), 255, np.uint8)
    row = [part for one in panels for part in (one, gap)][:-1]
    Image.fromarray(np.concatenate(row, 1)).save(path, quality=80, optimize=True)
    print(path)


def strips() -> dict[str, Callable[[], list[np.ndarray]]]:
    """Functions that draw the panels of each strip, by name."""
    image, logits = scene()

    def refined(kernels: list, **settings) -> np.ndarray:
        return PALETTE[fwcrf.refine(image, logits, from_logits=True, kernels=kernels, **settings)]

    def usual(xy: float = 80, color: float = 13, weight: float = 5) -> list:
        return [Spatial(3), Bilateral(xy, color, weight)]

    def confident(confidence: float) -> np.ndarray:
        return PALETTE[fwcrf.refine(image, logits.argmax(-1), from_labels=confidence, kernels=usual())]

    def sweep(caption: str, values: list, picture: Callable) -> Callable[[], list[np.ndarray]]:
        return lambda: [panel(picture(value), caption.format(value)) for value in values]

    solvers = ["mf", "fw", "l2fw", "efw", "anneal-fw"]
    return {
        "start": lambda: [
            panel(image, "image"),
            panel(PALETTE[logits.argmax(-1)], "scores"),
            panel(refined([Spatial(3)]), "Spatial(3) alone"),
            panel(refined(usual()[1:]), "Bilateral(80, 13) alone"),
            panel(refined(usual()), "both"),
        ],
        "color": sweep("color={}", [2, 5, 13, 40, 120], lambda v: refined(usual(color=v))),
        "xy": sweep("xy={}", [3, 10, 30, 80, 300], lambda v: refined(usual(xy=v))),
        "weight": sweep("weight={}", [0, 1, 5, 15, 50], lambda v: refined(usual(weight=v))),
        "spatial": sweep(
            "Spatial({}, weight=3)", [1, 3, 6, 12, 25], lambda v: refined([Spatial(v, weight=3)])
        ),
        "steps": sweep("num_steps={}", [0, 1, 3, 10, 50], lambda v: refined(usual(), num_steps=v)),
        "solver": sweep("{}", solvers, lambda v: refined(usual(), solver=v)),
        "confidence": sweep("from_labels={}", [0.55, 0.7, 0.9, 0.99, 0.999], confident),
    }


def main() -> None:
    drawn = strips()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--folder", type=Path, default=Path("docs/assets"))
    parser.add_argument("--only", choices=drawn, help="one strip instead of all")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in [args.only] if args.only else drawn:
        strip(args.folder / f"sweep-{name}.jpg", drawn[name]())


if __name__ == "__main__":
    main()
