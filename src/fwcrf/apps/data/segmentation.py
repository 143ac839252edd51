"""Torch data set of image files and label map files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from fwcrf.apps.data.classes import Classes
from fwcrf.apps.files import FileError, read_image, read_labels


class Pair(NamedTuple):
    """Name, image file and label file of one image."""

    name: str
    image: Path
    label: Path


class Segmentation(Dataset[tuple[Tensor, Tensor]]):
    """Data set in which ``dataset[i]`` is an image, ``(3, H, W)`` uint8, and its labels, ``(H, W)`` int64.

    Labels are 0 to L - 1, or ``classes.ignore_index`` for ignored pixels. ``translate`` maps the numbers in
    the label files to labels.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        classes: Classes,
        translate: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        if not pairs:
            raise ValueError("there are no images; expected at least one.")
        self.pairs: list[Pair] = list(pairs)
        self.classes = classes
        self.translate = translate

    @property
    def names(self) -> list[str]:
        return [pair.name for pair in self.pairs]

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        pair = self.pairs[index]
        image, labels = load_image(pair.image), read_labels(pair.label)
        if image.shape[1:] != labels.shape:
            raise FileError(
                f"{pair.image} has {tuple(image.shape[1:])} pixels and {pair.label} {labels.shape}; expected "
                "the same height and width."
            )
        labels = labels.astype(np.int64)
        if self.translate is not None:
            labels = self.translate(labels)
        self._check(labels, pair.label)
        return image, torch.from_numpy(labels)

    def _check(self, labels: np.ndarray, path: Path) -> None:
        L, ignore = len(self.classes), self.classes.ignore_index
        wrong = labels[((labels < 0) | (labels >= L)) & (labels != ignore)]
        if wrong.size:
            raise FileError(
                f"{path} has label {wrong[0]}; expected 0 to {L - 1}, or {ignore} for ignored pixels."
            )


def load_image(path: Path) -> Tensor:
    """Image ``(3, H, W)`` uint8. A grey image gets three equal channels."""
    values = read_image(path).values
    if values.dtype != np.uint8:
        raise FileError(f"{path} has dtype {values.dtype}; expected 8 bits per channel.")
    if values.shape[-1] == 1:
        values = np.repeat(values, 3, -1)
    return torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))


def listed(path: Path) -> list[str]:
    """Names of images from a list, one per line.

    If a line has the paths of image and labels, the name is the stem of the image's path.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise FileError(
            f"{path} cannot be read: {error.strerror or error}. Expected the list of a split."
        ) from error
    return [Path(line.split()[0]).stem if "/" in line else line.split()[0] for line in lines if line.strip()]


def existing(pairs: Sequence[Pair], hint: str) -> list[Pair]:
    """The pairs. Raises FileError with the sentence ``hint`` if a file is missing."""
    missing = [path for pair in pairs for path in (pair.image, pair.label) if not path.is_file()]
    if missing:
        raise FileError(
            f"{len(missing)} of {2 * len(pairs)} files are missing, the first {missing[0]}. {hint}"
        )
    return list(pairs)
