"""Mean IoU and accuracy over a set of images, from their common confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments.images import NINE
from fwcrf.apps.experiments.runs import Evaluations


class Accuracy(NamedTuple):
    """Values in percent. ``miou9`` omits classes of the nine that are absent from the true labels."""

    miou9: float
    miou18: float  # all classes in the true labels: 18 in the full set
    pixels: float
    iou: list[float]  # per class, nan if absent


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


def of_runs(seen: Sequence[Evaluations], place: int, num_classes: int) -> Accuracy:
    """Accuracy of the labels at the evaluated step number ``place``, over all images."""
    return accuracy(
        sum(
            (one.confusion(place, num_classes) for one in seen),
            start=seen[0].confusion(place, num_classes) * 0,
        )
    )
