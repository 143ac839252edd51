"""Custom data: a folder of images and a folder of masks, or a pair of folders and a list per split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fwcrf.apps.data.classes import Classes
from fwcrf.apps.data.segmentation import Pair, Segmentation, existing, listed
from fwcrf.apps.files import FileError
from fwcrf.apps.files.safe_json import load_json

_IMAGES = (".jpg", ".jpeg", ".png", ".tif", ".tiff")


class Folder(Segmentation):
    """Images in one folder, and masks NAME.png in another. The pixels of a mask are the labels.

    ``classes`` are the names of the classes, or their number.
    """

    def __init__(
        self,
        images: Path | str,
        masks: Path | str,
        classes: Classes | Sequence[str] | int,
        *,
        ignore_index: int = 255,
    ) -> None:
        if isinstance(classes, int):
            classes = [str(number) for number in range(classes)]
        if not isinstance(classes, Classes):
            classes = Classes(tuple(classes), ignore_index)
        masked = {path.stem: path for path in sorted(Path(masks).glob("*.png"))}
        found = [path for path in sorted(Path(images).iterdir()) if path.suffix.lower() in _IMAGES]
        pairs = [Pair(path.stem, path, masked[path.stem]) for path in found if path.stem in masked]
        if not pairs:
            raise FileError(
                f"no image in {images} ({len(found)} found) has a mask NAME.png in {masks} "
                f"({len(masked)} found)."
            )
        super().__init__(pairs, classes)


class Splits(Segmentation):
    """One split of a folder. A split has images, labels and a list::

    classes.json                  {"names": [...], "ignore_index": 255, "colors": [[r, g, b], ...]}
    val.txt                       one name per line
    val/images/NAME.jpg           or .png
    val/labels/NAME.png
    """

    def __init__(self, root: Path | str, split: str = "train") -> None:
        root = Path(root)
        images = {
            path.stem: path for path in (root / split / "images").glob("*") if path.suffix.lower() in _IMAGES
        }
        absent = root / split / "images"
        pairs = [
            Pair(name, images.get(name, absent / f"{name}.jpg"), root / split / "labels" / f"{name}.png")
            for name in listed(root / f"{split}.txt")
        ]
        super().__init__(existing(pairs, f"Expected images and labels in {root / split}."), _classes(root))


def _classes(root: Path) -> Classes:
    path = root / "classes.json"
    try:
        read = load_json(path.read_bytes(), str(path))
        colors = read.get("colors")
        return Classes(
            tuple(read["names"]),
            read.get("ignore_index", 255),
            tuple(tuple(color) for color in colors) if isinstance(colors, list) else None,
        )
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise FileError(
            f"{path} cannot be used ({error}); expected names and, if not 255, ignore_index."
        ) from error
