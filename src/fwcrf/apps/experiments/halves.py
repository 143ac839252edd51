"""The two halves of the validation images, reduced in size, as a data set for training and validation."""

from __future__ import annotations

import shutil
from pathlib import Path

from fwcrf.apps.data import Splits
from fwcrf.apps.experiments import images
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.files.atomic import writing
from fwcrf.optional import needed

# Not the network's own training images: there its logits are overconfident.
TRAIN, REPORT = "tune", "report"


def write_halves(setup: Setup) -> Path:
    """Write both halves as a folder for ``Splits`` and return it. No image side exceeds ``setup.side``."""
    dataset = Splits(setup.voc, "val")
    pairs = {pair.name: pair for pair in dataset.pairs}
    root = setup.output / "kept" / f"halves-{setup.side}-{setup.for_accuracies}"
    for split, half in zip((TRAIN, REPORT), images.halves(setup.voc), strict=True):
        names = images.spread(half, setup.for_accuracies)
        for name in names:
            for kind, source, smooth in (
                ("images", pairs[name].image, True),
                ("labels", pairs[name].label, False),
            ):
                target = root / split / kind / f"{name}.png"
                if not target.exists():
                    _write_smaller(source, target, setup.side, smooth)
        with writing(root / f"{split}.txt") as file:
            file.write("".join(f"{name}\n" for name in names).encode())
    shutil.copyfile(setup.voc / "classes.json", root / "classes.json")
    return root


def _write_smaller(source: Path, target: Path, side: int, smooth: bool) -> None:
    Image = needed("PIL.Image", "images")
    target.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(source) as opened:
        picture = opened.convert("RGB") if smooth else opened
        share = min(1.0, side / max(picture.size))
        size = tuple(max(1, round(share * length)) for length in picture.size)
        method = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
        smaller = picture.resize(size, method)
    with writing(target) as file:
        smaller.save(file, "PNG")
