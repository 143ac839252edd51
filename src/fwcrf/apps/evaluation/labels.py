"""Label maps of other programs, read from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fwcrf.apps.evaluation.evaluate import Labelled
from fwcrf.apps.files import FileError, read_labels


def stored(folder: Path | str, dataset: Labelled) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield name, labels from ``folder/NAME.png`` and true labels of each image, for ``evaluate``."""
    missing = [name for name in dataset.names if not (Path(folder) / f"{name}.png").is_file()]
    if missing:
        raise FileError(
            f"{folder} has no label map for {len(missing)} of {len(dataset)} images, the first "
            f"{missing[0]}.png."
        )
    for index, name in enumerate(dataset.names):
        labels = read_labels(Path(folder) / f"{name}.png").astype(np.int64)
        yield name, torch.from_numpy(labels), dataset[index][1]
