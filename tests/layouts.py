"""Small folders laid out as the real data sets are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (9, 12)


def picture(path: Path, seed: int, size=SIZE) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(values).save(path, quality=95)
    return values


def mask(path: Path, values, palette: bool = False) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.broadcast_to(np.asarray(values, np.uint8), SIZE).copy()
    image = Image.fromarray(values)
    if palette:
        image = Image.frombytes("P", SIZE[::-1], values.tobytes())
        image.putpalette([(37 * i) % 256 for i in range(768)])
    image.save(path)
    return values


def lines(path: Path, *text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(text) + "\n")


def voc(root: Path) -> Path:
    """VOCdevkit as the archive unpacks, with SegmentationClassAug beside."""
    home = root / "VOCdevkit" / "VOC2012"
    for number, name in enumerate(["2007_000032", "2007_000033", "2008_000002", "2011_000003"]):
        picture(home / "JPEGImages" / f"{name}.jpg", number)
        mask(home / "SegmentationClassAug" / f"{name}.png", number)
    for number, name in enumerate(["2007_000032", "2007_000033"]):
        values = np.full(SIZE, 15 + number)
        values[0] = 255
        mask(home / "SegmentationClass" / f"{name}.png", values, palette=True)
    sets = home / "ImageSets" / "Segmentation"
    lines(sets / "train.txt", "2007_000032")
    lines(sets / "val.txt", "2007_000033")
    lines(sets / "trainval.txt", "2007_000032", "2007_000033")
    return root


def cityscapes(root: Path) -> Path:
    for split, city, name in (
        ("train", "aachen", "aachen_000000_000019"),
        ("train", "zurich", "zurich_000001_000019"),
        ("val", "lindau", "lindau_000002_000019"),
    ):
        picture(root / "leftImg8bit" / split / city / f"{name}_leftImg8bit.png", 3)
        values = np.arange(np.prod(SIZE)).reshape(SIZE) % 34
        mask(root / "gtFine" / split / city / f"{name}_gtFine_labelIds.png", values)
        for other in ("color", "instanceIds"):
            mask(root / "gtFine" / split / city / f"{name}_gtFine_{other}.png", 0)
    picture(root / "leftImg8bit" / "train_extra" / "ulm" / "ulm_000003_000019_leftImg8bit.png", 4)
    mask(root / "gtCoarse" / "train_extra" / "ulm" / "ulm_000003_000019_gtCoarse_labelIds.png", 7)
    return root


def camvid(root: Path) -> Path:
    for split, name in (("train", "0001TP_006690"), ("val", "0016E5_07959"), ("test", "Seq05VD_f00000")):
        picture(root / split / f"{name}.png", 5)
        mask(root / f"{split}annot" / f"{name}.png", np.arange(12) % 12)
        here = "/SegNet/CamVid"
        lines(root / f"{split}.txt", f"{here}/{split}/{name}.png {here}/{split}annot/{name}.png")
    return root


def splits(root: Path, names=("sky", "road", "car"), count: int = 4, size=SIZE) -> Path:
    """A folder that ``fwcrf.apps.data.Splits`` reads; colours follow labels, to be learned."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "classes.json").write_text(json.dumps({"names": list(names), "ignore_index": 255}))
    random = np.random.default_rng(0)
    colours = random.integers(40, 216, (len(names), 3))
    for split in ("train", "val"):
        for number in range(count):
            labels = (
                random.integers(0, len(names), (3, 3)).repeat(size[0] // 3 + 1, 0).repeat(size[1] // 3 + 1, 1)
            )
            labels = labels[: size[0], : size[1]]
            noisy = colours[labels] + random.normal(0, 20, (*size, 3))
            for kind, values in (("images", np.clip(noisy, 0, 255)), ("labels", labels)):
                path = root / split / kind / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values.astype(np.uint8)).save(path)
        lines(root / f"{split}.txt", *(str(number) for number in range(count)))
    return root
