"""The job of ``fwcrf pseudo-labels``: activation maps of one image file into a label map for training."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fwcrf.apps.batch.job import Refined, RefineJob
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files.arrays import read_npy, read_npz
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_of, stem
from fwcrf.apps.files.images import read_image
from fwcrf.apps.files.safe_json import load_json


@dataclass(frozen=True)
class PseudoLabelJob(RefineJob):
    """Function from an item, whose scores are activation maps, to its pseudo labels.

    The settings are those of the refinement; ``reading`` says where the maps lie on the image.
    """

    threshold: tuple[float, ...] | None = None
    power: tuple[float, ...] | None = None
    confidence: float = 0.7
    classes: Mapping[str, Sequence[int]] | None = None  # labels of the images, by their names

    def refined(self, item: Item) -> Refined:
        import fwcrf

        picture = read_image(item.image, limit=self.reading.limit)
        maps, classes = read_maps(
            item.scores, key=self.reading.key, label_axis=self.reading.label_axis, limit=self.reading.limit
        )
        if self.classes is not None:
            classes = self._classes(item)
        try:
            labels = fwcrf.pseudo_labels(
                picture.values, maps, classes, threshold=self.threshold, power=self.power,
                confidence=self.confidence, ignore=self.reading.void, align=self.reading.align,
                **self.settings.arguments(),
            )  # fmt: skip
        except ValueError as error:
            raise FileError(f"{item.image} with {item.scores}: {error}") from error
        return Refined(picture, labels)

    def keeps_place(self, item: Item) -> bool:
        return False

    def more(self, item: Item) -> dict[str, Any]:
        # None for an image that is not listed, which fails.
        known = None if self.classes is None else self.classes.get(stem(item.image))
        return {"pseudo_labels": [self.threshold, self.power, self.confidence, self.classes is None, known]}

    def _classes(self, item: Item) -> Sequence[int]:
        assert self.classes is not None
        name = stem(item.image)
        if name not in self.classes:
            raise FileError(f"{item.image} has no classes: the list of classes has no {name!r}.")
        return self.classes[name]


def read_maps(
    path: Path | str, *, key: str | None = None, label_axis: int = -1, limit: int
) -> tuple[np.ndarray, list[int] | None]:
    """Activation maps, the last axis that of the maps, and the classes that the file names, if it does.

    A ``.npy`` file has the maps. A ``.npz`` file has the maps, under the name ``maps`` or ``key``, and
    possibly whole numbers under the name ``classes``.
    """
    form, classes = format_of(Path(path)), None
    if form == "npz":
        maps = read_npz(path, key, prefer=("maps",), limit=limit)[1]
        with zipfile.ZipFile(path) as archive:
            named = "classes.npy" in archive.namelist()
        if named:
            classes = read_npz(path, "classes", limit=limit)[1].reshape(-1).tolist()
    elif form == "npy":
        maps = read_npy(path, limit=limit)
    else:
        raise FileError(f"{path}: activation maps are read from .npy and .npz files.")
    if maps.ndim == 3:
        maps = np.moveaxis(maps, label_axis, -1)
    return maps, classes


def read_classes(path: Path | str) -> dict[str, list[int]]:
    """The labels of each image, by its name, from a JSON file: ``{"cat": [8, 15]}``."""
    path = Path(path)
    try:
        found = load_json(path.read_bytes(), str(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not isinstance(found, dict) or not all(
        isinstance(labels, list) and all(type(one) is int for one in labels) for labels in found.values()
    ):
        raise FileError(f'{path} is not a list of labels for each image; expected {{"cat": [8, 15]}}.')
    return found
