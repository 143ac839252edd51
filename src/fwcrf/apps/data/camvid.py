"""CamVid with the 11 classes of SegNet."""

from __future__ import annotations

from pathlib import Path

from fwcrf.apps.data.classes import CAMVID as CLASSES
from fwcrf.apps.data.segmentation import Pair, Segmentation, existing, listed


class CamVid(Segmentation):
    """Split ``train``, ``val`` or ``test`` of CamVid. Label 11 is ignored.

    ``root`` is the folder ``CamVid`` of SegNet's tutorial::

        train.txt                       /SegNet/CamVid/train/0001TP_006690.png /SegNet/CamVid/trainannot/...
        train/0001TP_006690.png
        trainannot/0001TP_006690.png
    """

    def __init__(self, root: Path | str, split: str = "train") -> None:
        root = Path(root)
        pairs = [
            Pair(name, root / split / f"{name}.png", root / f"{split}annot" / f"{name}.png")
            for name in listed(root / f"{split}.txt")
        ]
        super().__init__(existing(pairs, f"Expected {split} and {split}annot in {root}."), CLASSES)
