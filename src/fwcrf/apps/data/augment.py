"""Random flips, scales and crops.

The random numbers of an image depend only on the seed, the epoch and the image's index, not on the number of
workers or on earlier images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from fwcrf.apps.data.segmentation import Segmentation


@dataclass(frozen=True)
class Augmentation:
    """Left-right flip with probability ``flip``, scale by a uniform factor from ``scale``, random crop.

    An image that is smaller than the crop is padded on the right and below with mid-grey, its labels with
    ``ignore_index``.
    """

    crop: tuple[int, int]
    scale: tuple[float, float] = (0.5, 2.0)
    flip: float = 0.5
    ignore_index: int = 255

    def __call__(self, image: Tensor, labels: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Augmented image, ``(3, *crop)`` uint8, and labels, ``crop``."""
        if random.random() < self.flip:
            image, labels = image.flip(-1), labels.flip(-1)
        factor = random.uniform(*self.scale)
        if factor != 1:
            image, labels = _scaled(image, labels, factor)
        top, left = (
            int(random.integers(0, max(have - want, 0) + 1))
            for have, want in zip(labels.shape, self.crop, strict=True)
        )
        window = (slice(top, top + self.crop[0]), slice(left, left + self.crop[1]))
        image, labels = image[(..., *window)], labels[window]
        below, right = self.crop[0] - labels.shape[0], self.crop[1] - labels.shape[1]
        if below or right:
            image = F.pad(image, (0, right, 0, below), value=128)
            labels = F.pad(labels, (0, right, 0, below), value=self.ignore_index)
        return image.contiguous(), labels.contiguous()


class Augmented(Dataset[tuple[Tensor, Tensor]]):
    """Data set in which ``augmented[epoch, i]`` is image ``i``, augmented for that epoch."""

    def __init__(self, dataset: Segmentation, augmentation: Augmentation, seed: int) -> None:
        self.dataset = dataset
        self.augmentation = augmentation
        self.seed = seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return (self[0, i] for i in range(len(self)))

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        epoch, index = key
        return self.augmentation(*self.dataset[index], np.random.default_rng((self.seed, epoch, index)))


def _scaled(image: Tensor, labels: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    size = tuple(max(1, round(have * factor)) for have in labels.shape)
    resized = F.interpolate(image[None], size=size, mode="bilinear", antialias=True)[0]
    # Nearest neighbour: the old pixel that contains the centre of the new pixel.
    rows, columns = (
        ((torch.arange(new) + 0.5) * (have / new)).long()
        for have, new in zip(labels.shape, size, strict=True)
    )
    return resized, labels[rows][:, columns]
