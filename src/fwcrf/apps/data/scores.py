"""Images with a network's logits, stored in files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from fwcrf.apps.data.classes import Classes
from fwcrf.apps.data.folder import Splits
from fwcrf.apps.data.segmentation import Segmentation
from fwcrf.apps.files import FileError
from fwcrf.apps.models.resize import from_grid

Reader = Callable[[Path, tuple[int, int]], Tensor]


class Scored(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Data set of images ``(3, H, W)`` uint8 with labels ``(H, W)`` and logits ``(L, H, W)``.

    It has the images of ``dataset`` with a file in ``folder``. ``read(path, (H, W))`` returns the logits at
    the size of the image.
    """

    def __init__(self, dataset: Segmentation, folder: Path, read: Reader) -> None:
        self.files: dict[str, Path] = {path.stem: path for path in Path(folder).glob("*.npz")}
        self.indices: list[int] = [i for i, name in enumerate(dataset.names) if name in self.files]
        if not self.indices:
            raise FileError(f"{folder} has no NAME.npz for any of the {len(dataset)} images.")
        self.dataset = dataset
        self.read = read

    @property
    def classes(self) -> Classes:
        return self.dataset.classes

    @property
    def names(self) -> list[str]:
        return [self.dataset.names[i] for i in self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, Tensor]:
        image, labels = self.dataset[self.indices[index]]
        return image, labels, self.read(self.files[self.names[index]], (image.shape[1], image.shape[2]))


def deeplab(root: Path | str, split: str = "val") -> Scored:
    """Data set of ``Splits`` with ``logits_deeplabv3``: logits of every 8th pixel, from the first."""
    return Scored(Splits(root, split), Path(root) / split / "logits_deeplabv3", _strided)


def espnet(root: Path | str, split: str = "test") -> Scored:
    """Data set of ``Splits`` with ``logits_espnet``: the input and the kernel of the last layer.

    The network's last channel, for ignored pixels, is dropped.
    """
    dataset, folder = Splits(root, split), Path(root) / split / "logits_espnet"
    kernel = torch.from_numpy(np.load(folder / "deconv_weight.npy")).float()

    def deconvolved(path: Path, size: tuple[int, int]) -> Tensor:
        with np.load(path) as stored:
            features = torch.from_numpy(stored["feat"]).float()
        return F.conv_transpose2d(features[None], kernel, stride=2)[0, : len(dataset.classes)]

    return Scored(dataset, folder, deconvolved)


def _strided(path: Path, size: tuple[int, int]) -> Tensor:
    with np.load(path) as stored:
        logits = torch.from_numpy(stored["logits"]).float()
    return from_grid(logits[None], 8, size)[0]
