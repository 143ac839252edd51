"""PASCAL VOC 2012, optionally with the masks of the Semantic Boundaries data set."""

from __future__ import annotations

from pathlib import Path

from fwcrf.apps.data.classes import VOC as CLASSES
from fwcrf.apps.data.segmentation import Pair, Segmentation, existing, listed
from fwcrf.apps.files import FileError

_LISTS = {"trainaug": ("trainaug.txt", "train_aug.txt")}


class VOC(Segmentation):
    """Split ``train``, ``val``, ``trainval`` or ``trainaug``, with 21 classes, and 255 along borders.

    ``root`` is the folder ``VOC2012``, ``VOCdevkit``, or the folder that contains ``VOCdevkit``::

        VOCdevkit/VOC2012/JPEGImages/2007_000032.jpg
                          SegmentationClass/2007_000032.png
                          SegmentationClassAug/2007_000032.png      for trainaug
                          ImageSets/Segmentation/train.txt

    ``ImageSets/Segmentation/trainaug.txt`` lists the 10582 images of ``trainaug``. Without that file, it has
    the images in ``SegmentationClassAug`` that are not in ``val``.
    """

    def __init__(self, root: Path | str, split: str = "train") -> None:
        home = _home(Path(root))
        masks = home / ("SegmentationClassAug" if split == "trainaug" else "SegmentationClass")
        names = _names(home, split)
        pairs = [Pair(n, home / "JPEGImages" / f"{n}.jpg", masks / f"{n}.png") for n in names]
        super().__init__(existing(pairs, f"Expected JPEGImages and {masks.name} in {home}."), CLASSES)


def _home(root: Path) -> Path:
    for home in (root, root / "VOC2012", root / "VOCdevkit" / "VOC2012"):
        if (home / "JPEGImages").is_dir():
            return home
    raise FileError(f"{root} has no JPEGImages; expected the folder VOC2012, or VOCdevkit that contains it.")


def _names(home: Path, split: str) -> list[str]:
    lists = home / "ImageSets" / "Segmentation"
    for name in _LISTS.get(split, (f"{split}.txt",)):
        if (lists / name).is_file():
            return listed(lists / name)
    augmented = home / "SegmentationClassAug"
    if split == "trainaug" and augmented.is_dir():
        val = set(listed(lists / "val.txt"))
        return sorted(path.stem for path in augmented.glob("*.png") if path.stem not in val)
    known = sorted(path.stem for path in lists.glob("*.txt"))
    raise FileError(
        f"there is no list of {split!r} in {lists}; expected one of {', '.join(known) or 'train, val'}."
    )
