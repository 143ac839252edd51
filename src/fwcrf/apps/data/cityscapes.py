"""Cityscapes with its 19 evaluation classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fwcrf.apps.data.classes import CITYSCAPES as CLASSES
from fwcrf.apps.data.segmentation import Pair, Segmentation, existing
from fwcrf.apps.files import FileError

# Number of each class in the label files; all other numbers are ignored.
IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)


def train_ids(ids: np.ndarray) -> np.ndarray:
    """Class numbers 0 to 18, or 255, from the numbers in the label files.

    >>> train_ids(np.array([0, 7, 26, 33, -1])).tolist()
    [255, 0, 13, 18, 255]
    """
    table = np.full(256, CLASSES.ignore_index, np.int64)
    table[list(IDS)] = np.arange(len(IDS))
    return table[ids]


class Cityscapes(Segmentation):
    """Split ``train`` or ``val`` with fine labels, or ``train_extra`` with ``labels="gtCoarse"``.

    ``root`` is the folder of the unpacked packages::

        leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png
        gtFine/train/aachen/aachen_000000_000019_gtFine_labelIds.png
    """

    def __init__(self, root: Path | str, split: str = "train", *, labels: str = "gtFine") -> None:
        root = Path(root)
        images = root / "leftImg8bit" / split
        pairs = []
        for path in sorted(images.glob("*/*_leftImg8bit.png")):
            name = path.name.removesuffix("_leftImg8bit.png")
            label = root / labels / split / path.parent.name / f"{name}_{labels}_labelIds.png"
            pairs.append(Pair(name, path, label))
        if not pairs:
            raise FileError(
                f"{images} has no CITY/*_leftImg8bit.png; expected leftImg8bit and {labels} in {root}."
            )
        super().__init__(existing(pairs, f"Expected {labels} beside leftImg8bit."), CLASSES, train_ids)
