"""Scores of a model on a split, image by image: confusion near borders and everywhere, boundary F-score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf.apps.evaluation import BoundaryF, Confusion
from fwcrf.apps.evaluation.boundary import borders, completed, within
from fwcrf.apps.experiments.accuracy import iou
from fwcrf.apps.experiments.runs import matrix_of, nonzero_counts
from fwcrf.apps.experiments.verdict import equally
from fwcrf.torch_ops.printed import in_one_line

RADIUS = 5.0  # of the trimap, in pixels


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of a model on all images of a split."""

    counts: Tensor  # confusion matrices (images, L, L)
    near: Tensor  # confusion matrices of the pixels near borders
    boundary: Tensor  # (images, L) F-scores, nan for a class without a border

    __repr__ = in_one_line

    @staticmethod
    def of(stored: Sequence[Sequence[Any]], num_classes: int) -> Scored:
        """From the values that ``measured`` returned for each image."""
        whole, near = (torch.stack([matrix_of(each[k], num_classes) for each in stored]) for k in (0, 1))
        scores = [[float("nan") if value is None else value for value in each[2]] for each in stored]
        return Scored(whole, near, torch.tensor(scores, dtype=torch.float64))

    def mean_iou(self, classes: Sequence[int]) -> float:
        return float(mean_iou(equally(len(self.counts)), self.counts, classes))

    def trimap_iou(self, classes: Sequence[int]) -> float:
        return float(mean_iou(equally(len(self.near)), self.near, classes))

    def per_class(self) -> list[float]:
        """IoU in percent, nan for a class without true pixels."""
        return iou(equally(len(self.counts)), self.counts)[0].tolist()

    def accuracy(self) -> float:
        matrix = self.counts.sum(0)
        return float(100 * matrix.diagonal().sum() / matrix.sum())

    def boundary_f(self, classes: Sequence[int]) -> float:
        """Boundary F-score in percent: mean over images, then over classes."""
        return float(100 * self.boundary[:, list(classes)].nanmean(0).nanmean())


def mean_iou(shares: Tensor, counts: Tensor, classes: Sequence[int]) -> Tensor:
    """Mean IoU ``(draws,)`` in percent over the classes, without classes that have no true pixels."""
    return iou(shares, counts)[:, list(classes)].nanmean(1)


class Borders(NamedTuple):
    """What the scores of all models need of the truth of an image."""

    completed: Tensor  # labels, also of ignored pixels near a label
    near: Tensor  # mask of the trimap

    __repr__ = in_one_line

    @staticmethod
    def of(truth: Tensor, ignore: int) -> Borders:
        whole = completed(truth, ignore)
        return Borders(whole, within(borders(whole, ignore), RADIUS))


def measured(labels: Tensor, truth: Tensor, near: Borders, num_classes: int, ignore: int) -> list[Any]:
    """Plain values for ``Scored.of``, from the labels ``(H, W)`` of one image."""
    everywhere, beside = Confusion(num_classes, ignore), Confusion(num_classes, ignore)
    everywhere.update(labels, truth)
    beside.update(labels, truth, near.near)
    boundary = BoundaryF(num_classes, ignore)
    boundary.update(labels, truth, near.completed)
    scores = [None if value != value else round(value, 6) for value in boundary.per_class().tolist()]
    return [nonzero_counts(everywhere.matrix), nonzero_counts(beside.matrix), scores]
