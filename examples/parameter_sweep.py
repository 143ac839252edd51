"""Draw the effect of each parameter: a strip of pictures per parameter, for docs/parameters.md.

Each picture shows labels over parts of two photographs, refined from the stored scores of a network
(fwcrf.examples), with the default settings and one parameter changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import fwcrf
from fwcrf import examples
from fwcrf.apps.files.palette import overlay

DEFAULT = fwcrf.presets.get("default")
SPATIAL, BILATERAL = DEFAULT.kernels
# Photographs, and the part of each that is shown; the whole photograph is refined.
PARTS = {"rocket": np.s_[105:427, 170:490], "chelsea": np.s_[20:290, 110:380]}
CAPTION = 22
WIDTH = 236


class Scenes:
    """The photographs, with the network's logits."""

    def __init__(self) -> None:
        self.loaded = {name: examples.load(name) for name in PARTS}

    def drawn(self, labels: Callable[[examples.Example], np.ndarray | None]) -> list[np.ndarray]:
        """The part of each photograph with labels over it, or without if there are none."""
        pictures = []
        for name, part in PARTS.items():
            scene = self.loaded[name]
            found = labels(scene)
            whole = scene.image if found is None else overlay(scene.image, found)
            pictures.append(np.ascontiguousarray(whole[part]))
        return pictures

    def refined(self, **changes: Any) -> list[np.ndarray]:
        """Pictures of the default's labels with other values, plain ones as of a preset."""
        preset = replace(DEFAULT, **changes)
        return self.drawn(
            lambda scene: fwcrf.refine(scene.image, scene.logits, from_logits=True, **preset.arguments())
        )

    def confident(self, confidence: float) -> list[np.ndarray]:
        """Pictures of the default's labels, given the network's labels and a confidence in them."""
        return self.drawn(
            lambda scene: fwcrf.refine(
                scene.image, scene.logits.argmax(-1), from_labels=confidence, num_labels=len(scene.names)
            )
        )


def panel(pictures: Sequence[np.ndarray], caption: str) -> np.ndarray:
    """Pictures below each other, with a caption on top."""
    sized = []
    for picture in pictures:
        height = round(picture.shape[0] * WIDTH / picture.shape[1])
        sized.append(Image.fromarray(picture).resize((WIDTH, height), Image.Resampling.LANCZOS))
    drawn = Image.new("RGB", (WIDTH, CAPTION + sum(one.height + 4 for one in sized) - 4), "white")
    ImageDraw.Draw(drawn).text((4, 2), caption, fill="black", font=ImageFont.load_default(14))
    top = CAPTION
    for one in sized:
        drawn.paste(one, (0, top))
        top += one.height + 4
    return np.asarray(drawn)


def strip(path: Path, panels: list[np.ndarray]) -> None:
    gap = np.full((len(panels[0]), 4, 3), 255, np.uint8)
    row = [part for one in panels for part in (one, gap)][:-1]
    Image.fromarray(np.concatenate(row, 1)).save(path, quality=80, optimize=True)
    print(path)


def strips() -> dict[str, Callable[[], list[np.ndarray]]]:
    """Functions that draw the panels of each strip, by name."""
    scenes = Scenes()

    def sweep(caption: str, values: list, pictures: Callable) -> Callable[[], list[np.ndarray]]:
        return lambda: [panel(pictures(value), caption.format(value)) for value in values]

    def bilateral(name: str) -> Callable:
        return lambda value: scenes.refined(kernels=(SPATIAL, {**BILATERAL, name: value}))

    solvers = ["mf", "fw", "l2fw", "efw", "anneal-fw"]
    return {
        "start": lambda: [
            panel(scenes.drawn(lambda scene: None), "image"),
            panel(scenes.drawn(lambda scene: scene.logits.argmax(-1)), "scores"),
            panel(scenes.refined(kernels=(SPATIAL,)), "Spatial alone"),
            panel(scenes.refined(kernels=(BILATERAL,)), "Bilateral alone"),
            panel(scenes.refined(), "both: the default"),
        ],
        "color": sweep("color={}", [1, 3, 6, 25, 100], bilateral("color")),
        "xy": sweep("xy={}", [5, 20, 80, 160, 400], bilateral("xy")),
        "weight": sweep("weight={}", [0, 0.6, 2.4, 10, 40], bilateral("weight")),
        "spatial": sweep(
            "spatial weight={}",
            [0, 0.3, 3, 10, 30],
            lambda value: scenes.refined(kernels=({**SPATIAL, "weight": value}, BILATERAL)),
        ),
        "balance": sweep("balance={}", [0, 0.15, 0.3, 0.6, 1], lambda value: scenes.refined(balance=value)),
        "steps": sweep("num_steps={}", [0, 1, 2, 5, 20], lambda value: scenes.refined(num_steps=value)),
        "solver": sweep("{}", solvers, lambda value: scenes.refined(solver={"name": value})),
        "confidence": sweep("from_labels={}", [0.55, 0.7, 0.8, 0.9, 0.99], scenes.confident),
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
