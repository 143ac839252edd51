"""Features of frozen layers in files of half precision, a file per image, each computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.data import Segmentation
from fwcrf.apps.experiments.benchmark import Benchmark
from fwcrf.apps.experiments.divided import Divided, Features
from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.digest import sha256
from fwcrf.torch_ops.printed import in_one_line


class Sample(NamedTuple):
    """An image with its true labels and its features."""

    image: Tensor  # (1, 3, H, W), float32, in grey levels
    truth: Tensor  # (1, H, W)
    features: Features

    __repr__ = in_one_line

    @property
    def size(self) -> tuple[int, int]:
        return self.truth.shape[-2], self.truth.shape[-1]


@dataclass(frozen=True)
class FeatureFiles:
    """Features in a folder. A file is named by the content of the weights and of the image."""

    folder: Path
    benchmark: Benchmark

    def sample(self, split: str, index: int, network: Divided) -> Sample:
        """An image of a split. Its features are read, or computed by ``network`` and stored."""
        dataset = self.benchmark.splits[split]
        image, truth = dataset[index]
        path = self.path(dataset, index)
        if not path.exists():
            self._write(path, network.features(image))
        with np.load(path) as stored:
            features = [torch.from_numpy(stored[name].astype(np.float32)) for name in stored.files]
        return Sample(image[None].float(), truth[None], features)

    def missing(self, split: str) -> list[int]:
        """Indices of the images of a split without a file."""
        dataset = self.benchmark.splits[split]
        return [index for index in range(len(dataset)) if not self.path(dataset, index).exists()]

    def path(self, dataset: Segmentation, index: int) -> Path:
        canvas = "-quick" if self.benchmark.quick else ""
        content = sha256(dataset.pairs[index].image)
        return self.folder / f"{self.benchmark.digest[:12]}{canvas}-{content[:24]}.npz"

    def _write(self, path: Path, features: Sequence[Tensor]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with writing(path) as file:
            np.savez(file, *(each.numpy().astype(np.float16) for each in features))  # type: ignore[arg-type]
