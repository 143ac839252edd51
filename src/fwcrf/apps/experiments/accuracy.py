"""Mean IoU and accuracy over a set of images, from their common confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.apps.experiments.images import NINE
from fwcrf.apps.experiments.runs import Evaluations
from fwcrf.apps.experiments.verdict import equally


class Accuracy(NamedTuple):
    """Values in percent. ``miou9`` omits classes of the nine that are absent from the true labels."""

    miou9: float
    miou18: float  # all classes in the true labels: 18 in the full set
    pixels: float
    iou: list[float]  # per class, nan if absent from the true labels


def accuracy(counts: Tensor) -> Accuracy:
    """Accuracy over all images, from their confusion matrices ``(images, L, L)``."""
    matrix = counts.sum(0)
    everything = equally(len(counts))
    return Accuracy(
        float(miou9(everything, counts)),
        float(miou18(everything, counts)),
        float(100 * matrix.diagonal().sum() / matrix.sum()),
        iou(everything, counts)[0].tolist(),
    )


def iou(shares: Tensor, counts: Tensor) -> Tensor:
    """IoU ``(draws, L)`` in percent of each draw's confusion matrix, nan for a class without true pixels.

    ``shares`` is ``(draws, images)``: how often an image counts in a draw. ``counts`` is ``(images, L, L)``.
    """
    matrix = (shares @ counts.double().flatten(1)).view(-1, *counts.shape[1:])
    both, true = matrix.diagonal(dim1=1, dim2=2), matrix.sum(2)
    return torch.where(true > 0, 100 * both / (true + matrix.sum(1) - both), torch.nan)


def miou9(shares: Tensor, counts: Tensor) -> Tensor:
    """Mean IoU ``(draws,)`` over the nine classes, or over all present if none of the nine is."""
    present = present_in(counts)
    return iou(shares, counts)[:, [c for c in NINE if c in present] or present].nanmean(1)


def miou18(shares: Tensor, counts: Tensor) -> Tensor:
    """Mean IoU ``(draws,)`` over all classes in the true labels."""
    return iou(shares, counts).nanmean(1)


def present_in(counts: Tensor) -> list[int]:
    """Classes in the true labels of any image."""
    return counts.sum((0, 2)).nonzero().flatten().tolist()


def of_runs(seen: Sequence[Evaluations], place: int, num_classes: int) -> Tensor:
    """Confusion matrices ``(images, L, L)`` of the labels at the evaluated step number ``place``."""
    return torch.stack([one.confusion(place, num_classes) for one in seen])
