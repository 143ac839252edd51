"""Accuracy over a set of images, from one confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments.images import NINE
from fwcrf.apps.experiments.runs import Seen


class Accuracy(NamedTuple):
    """In percent. A class of the nine that is not in the truth does not count."""

    miou9: float
    miou18: float  # of all classes in the truth: 18 in the whole set at hand
    pixels: float
    iou: list[float]  # per class, nan where it does not occur


def accuracy(matrix: Tensor, ignore_index: int = 255) -> Accuracy:
    confusion = Confusion(len(matrix), ignore_index)
    confusion.matrix += matrix
    present = confusion.present()
    return Accuracy(
        100 * confusion.mean_iou([c for c in NINE if c in present] or present),
        100 * confusion.mean_iou(present),
        100 * confusion.accuracy(),
        [100 * value for value in confusion.iou().tolist()],
    )


def of_runs(seen: Sequence[Seen], place: int, num_classes: int) -> Accuracy:
    """Of the labels at one of the steps looked at, over all images."""
    return accuracy(
        sum(
            (one.confusion(place, num_classes) for one in seen),
            start=seen[0].confusion(place, num_classes) * 0,
        )
    )
