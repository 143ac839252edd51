"""Data sets for training, tuning and testing, each with a published network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fwcrf.apps.data import Segmentation, Splits
from fwcrf.apps.experiments import divided, images
from fwcrf.apps.experiments.divided import Divided
from fwcrf.apps.experiments.setup import Setup
from fwcrf.apps.files import FileError
from fwcrf.apps.files.digest import sha256
from fwcrf.torch_ops.printed import in_one_line

TRAIN, VAL, TEST = "train", "val", "test"


@dataclass(frozen=True)
class Benchmark:
    """Splits by name: parameters are trained on TRAIN, settings chosen on VAL, results measured on TEST."""

    title: str
    splits: dict[str, Segmentation]
    weights: Path
    counted: Sequence[int]  # classes of the mean IoU
    quick: bool = False

    __repr__ = in_one_line

    @property
    def num_classes(self) -> int:
        return len(self.splits[TEST].classes)

    @property
    def measure(self) -> str:
        """The name of the mean IoU, with its number of classes."""
        return f"mIoU{len(self.counted)}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the network's weights."""
        return sha256(self.weights)

    def network(self) -> Divided:
        """A new network with published weights."""
        if self.title == "CamVid":
            return divided.espnet(self.weights, self.num_classes)
        return divided.deeplab(self.weights, self.num_classes, None if self.quick else 513)


def camvid(setup: Setup) -> Benchmark:
    """CamVid with its official splits, and ESPNet, which was trained on the same training images."""
    root = setup.data / "camvid"
    splits = {split: _part(Splits(root, split), None, setup) for split in (TRAIN, VAL, TEST)}
    return Benchmark(
        "CamVid",
        splits,
        _existing(setup.data / "weights" / "espnet_p2q8_camvid.safetensors"),
        range(len(splits[TEST].classes)),
        setup.quick,
    )


def voc(setup: Setup) -> Benchmark:
    """A part of VOC's validation images, and DeepLabv3, which was not trained on them.

    Every fourth image of the first half is for choices, the rest of this half for training. The network's
    own training images are of no use: there its logits are overconfident.
    """
    first, second = images.halves(setup.voc)
    whole = Splits(setup.voc, "val")
    names = {TRAIN: [n for k, n in enumerate(first) if k % 4 != 3], VAL: first[3::4], TEST: second}
    known = range(len(whole.classes))
    return Benchmark(
        "VOC",
        {split: _part(whole, each, setup) for split, each in names.items()},
        _existing(setup.weights),
        [c for c in images.NINE if c in known] if len(known) > max(images.NINE) else known,
        setup.quick,
    )


def _part(dataset: Segmentation, names: Sequence[str] | None, setup: Setup) -> Segmentation:
    """The images of these names, at most as many as the setup has for accuracies."""
    chosen = set(images.spread(dataset.names if names is None else names, setup.for_accuracies))
    return Segmentation([pair for pair in dataset.pairs if pair.name in chosen], dataset.classes)


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileError(f"{path} does not exist; expected the network's published weights.")
    return path
