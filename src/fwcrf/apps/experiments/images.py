"""The images of the experiments, each with its true labels and a network's logits.

Settings are chosen on the first half of ``val.txt`` and measured on the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from fwcrf.apps.data.scores import Scored, deeplab
from fwcrf.torch_ops.printed import in_one_line

# Classes frequent enough in these images for a meaningful IoU.
NINE = (0, 8, 9, 10, 12, 13, 15, 17, 18)


class Picture(NamedTuple):
    image: Tensor  # (3, H, W), float32, in grey levels
    truth: Tensor  # (H, W)
    logits: Tensor  # (L, H, W), float32

    __repr__ = in_one_line


@lru_cache(maxsize=2)
def scored(root: Path) -> Scored:
    return deeplab(root, "val")


def halves(root: Path) -> tuple[list[str], list[str]]:
    """The image names for the choice of settings, and the names for measurements."""
    names = scored(root).names
    middle = len(names) // 2
    return names[:middle], names[middle:]


def spread(names: Sequence[str], count: int) -> list[str]:
    """``count`` of the names, evenly spaced.

    >>> spread("abcdefg", 3)
    ['a', 'c', 'e']
    """
    count = min(count, len(names))
    return [names[number * len(names) // count] for number in range(count)]


def load(root: Path, name: str, every: int = 1) -> Picture:
    """The image of that name, subsampled: every ``every``-th pixel along each axis."""
    dataset = scored(root)
    image, truth, logits = dataset[dataset.names.index(name)]
    thin = (..., slice(None, None, every), slice(None, None, every))
    return Picture(image[thin].float().contiguous(), truth[thin[1:]].contiguous(), logits[thin].contiguous())


def files(root: Path, name: str) -> list[Path]:
    """The files of an image: pixels, true labels, logits."""
    dataset = scored(root)
    pair = next(pair for pair in dataset.dataset.pairs if pair.name == name)
    return [pair.image, pair.label, dataset.files[name]]
