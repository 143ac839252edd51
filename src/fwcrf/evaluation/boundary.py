"""How good labels are near the borders of objects.

Two measures. The *trimap* IoU is that of the pixels within r of a border in the truth: a confusion matrix
with ``where=trimap(truth, r)``. The *boundary F-score* compares the borders themselves: of each class in each
image, precision is the share of the labels' border that is within r of the true one, recall the share of the
true one that is within r of the labels'.

Distances are Euclidean, in pixels. A border pixel of a set is one in it that has one of its four neighbours
outside. The edge of the image is no border.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def borders(labels: Tensor) -> Tensor:
    """The pixels ``(..., H, W)`` with a neighbour of another label, on either side of a border.

    >>> borders(torch.tensor([[0, 0, 0, 1, 1]])).int().tolist()
    [[0, 0, 1, 1, 0]]
    """
    found = torch.zeros_like(labels, dtype=torch.bool)
    for axis in (-2, -1):
        size = labels.shape[axis]
        differ = labels.narrow(axis, 0, size - 1) != labels.narrow(axis, 1, size - 1)
        found.narrow(axis, 0, size - 1).logical_or_(differ)
        found.narrow(axis, 1, size - 1).logical_or_(differ)
    return found


def within(mask: Tensor, radius: float) -> Tensor:
    """The pixels ``(..., H, W)`` at most ``radius`` from one of the mask.

    >>> within(torch.tensor([[0, 0, 0, 1, 0]]).bool(), 1.5).int().tolist()
    [[0, 0, 1, 1, 1]]
    """
    height, width = mask.shape[-2:]
    flat = mask.reshape(1, -1, height, width).float()
    found = torch.zeros_like(flat)
    reach = min(math.floor(radius), height - 1)
    for shift in range(-reach, reach + 1):
        # A row of the disc: everything that far to the left and to the right, then up or down.
        half = min(math.floor(math.sqrt(radius**2 - shift**2)), width - 1)
        row = F.max_pool2d(flat, (1, 2 * half + 1), 1, (0, half)) if half else flat
        rows = height - abs(shift)
        into, of = (shift, 0) if shift >= 0 else (0, -shift)
        torch.maximum(
            found[..., into : into + rows, :],
            row[..., of : of + rows, :],
            out=found[..., into : into + rows, :],
        )
    return found.bool().view_as(mask)


def trimap(truth: Tensor, radius: float) -> Tensor:
    """The pixels at most ``radius`` from a border pixel of the truth, ``(..., H, W)``.

    Pixels that do not count are a class of their own here: along objects of PASCAL VOC they are the border.
    """
    return within(borders(truth), radius)


class BoundaryF:
    """The boundary F-score, averaged over the images in which a class occurs, then over classes.

    ``radius`` is in pixels, or None for 0.75 % of the image's diagonal, as is usual. Pixels with
    ``ignore_index`` take no part: of the labels' border, what lies on them counts neither as found nor as
    wrong, but a true border pixel near it is found.

    >>> score = BoundaryF(2, radius=1)
    >>> truth = torch.tensor([[0, 0, 0, 1, 1, 1]])
    >>> score.update(torch.tensor([[0, 0, 0, 0, 1, 1]]), truth)
    >>> score.mean()
    1.0
    """

    def __init__(self, num_classes: int, ignore_index: int = 255, radius: float | None = None) -> None:
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.radius = radius
        self.sums: Tensor = torch.zeros(num_classes, dtype=torch.float64)
        self.counts: Tensor = torch.zeros(num_classes, dtype=torch.int64)

    def update(self, predicted: Tensor, truth: Tensor) -> None:
        """Count one image, ``(H, W)``."""
        if predicted.shape != truth.shape or truth.dim() != 2:
            raise ValueError(
                f"predicted labels have shape {tuple(predicted.shape)} and true ones {tuple(truth.shape)}; "
                "expected (height, width) of one image, the same."
            )
        radius = 0.0075 * math.hypot(*truth.shape) if self.radius is None else self.radius
        valid = truth != self.ignore_index
        border_of_labels, border_of_truth = borders(predicted), borders(truth)
        for label in truth[valid].unique().tolist():
            ours, theirs = border_of_labels & (predicted == label), border_of_truth & (truth == label)
            counted = ours & valid
            if not theirs.any():
                continue
            precision = _share(counted, within(theirs, radius)) if counted.any() else float(ours.any())
            recall = _share(theirs, within(ours, radius))
            self.sums[label] += 2 * precision * recall / (precision + recall) if precision + recall else 0.0
            self.counts[label] += 1

    def per_class(self) -> Tensor:
        """One per class, in float64; nan for a class that has no border anywhere."""
        return self.sums / self.counts

    def mean(self) -> float:
        return self.per_class().nanmean().item()


def _share(of: Tensor, near: Tensor) -> float:
    return ((of & near).sum() / of.sum()).item()
