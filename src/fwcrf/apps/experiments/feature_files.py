"""Features of frozen layers in files of half precision, a file per image, each computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.apps.data import Segmentation
from fwcrf.apps.experiments.benchmark import Benchmark
from fwcrf.apps.experiments.divided import WHOLE, Divided, Features, Window
from fwcrf.apps.files.atomic import writing
from fwcrf.apps.files.digest import sha256
from fwcrf.torch_ops.printed import in_one_line


class Sample(NamedTuple):
    """A window of an image with its true labels, and the features of the whole image."""

    image: Tensor  # (1, 3, h, w), float32, in grey levels
    truth: Tensor  # (1, h, w)
    features: Features  # in half precision
    size: tuple[int, int]  # of the whole image
    window: Window = WHOLE

    __repr__ = in_one_line

    def part(self, window: Window) -> Sample:
        """A window of a whole image."""
        image, truth = (each[..., window[0], window[1]].contiguous() for each in (self.image, self.truth))
        return Sample(image, truth, self.features, self.size, window)


@dataclass(frozen=True)
class FeatureFiles:
    """Features in a folder. A file is named by the content of the weights and of the image."""

    folder: Path
    benchmark: Benchmark

    def sample(self, split: str, index: int, network: Divided) -> Sample:
        """An image of a split. Its features are read, or computed by ``network`` and stored.

        Files are mapped into memory: the parts of features that are not used are not read.
        """
        dataset = self.benchmark.splits[split]
        path = self.path(dataset, index)
        image, truth = dataset[index]
        if not path.exists():
            self._write(path, network.features(image))
        features = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return Sample(image[None].float(), truth[None], features, (truth.shape[0], truth.shape[1]))

    def missing(self, split: str) -> list[int]:
        """Indices of the images of a split without a file."""
        dataset = self.benchmark.splits[split]
        return [index for index in range(len(dataset)) if not self.path(dataset, index).exists()]

    def path(self, dataset: Segmentation, index: int) -> Path:
        canvas = "-quick" if self.benchmark.quick else ""
        content = sha256(dataset.pairs[index].image)
        return self.folder / f"{self.benchmark.digest[:12]}{canvas}-{content[:24]}.pt"

    def _write(self, path: Path, features: Sequence[Tensor]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with writing(path) as file:
            torch.save([each.half() for each in features], file)
