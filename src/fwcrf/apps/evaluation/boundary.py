"""How good labels are near the borders of objects.

Two measures. The *trimap* IoU is that of the pixels within r of a border in the truth: a confusion matrix
with ``where=trimap(truth, r)``. The *boundary F-score* compares the borders themselves: of each class in each
image, precision is the share of the labels' border that is within r of the true one, recall the share of the
true one that is within r of the labels'.

Distances are Euclidean, in pixels. A border pixel of a set is one in it that has one of its four neighbours
outside. The edge of the image is no border.

Pixels that do not count make no border of their own. Along the objects of PASCAL VOC they are a narrow band
in which the border is somewhere: those within ``BAND`` of a pixel that counts have the label of the nearest
one when borders are looked for, so that the border is in the middle. What lies deeper in, an object that
nobody labelled for example, has no border with anything.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

# Half the width of PASCAL VOC's bands, which are five pixels wide, and as much again where two of them meet.
BAND = 5


def borders(labels: Tensor, ignore_index: int = 255) -> Tensor:
    """The pixels ``(..., H, W)`` with a neighbour of another label, on either side of a border.

    Next to ``ignore_index`` there is none.

    >>> borders(torch.tensor([[0, 0, 0, 1, 1, 255]])).int().tolist()
    [[0, 0, 1, 1, 0, 0]]
    """
    counts = labels != ignore_index
    found = torch.zeros_like(labels, dtype=torch.bool)
    for axis in (-2, -1):
        size = labels.shape[axis]
        differ = labels.narrow(axis, 0, size - 1) != labels.narrow(axis, 1, size - 1)
        differ &= counts.narrow(axis, 0, size - 1) & counts.narrow(axis, 1, size - 1)
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


def completed(truth: Tensor, ignore_index: int = 255, reach: int = BAND) -> Tensor:
    """The labels ``(..., H, W)``, with the nearest one for pixels that do not count but are within ``reach``.

    >>> completed(torch.tensor([[0, 255, 255, 255, 1]]), reach=1).tolist()
    [[0, 0, 255, 1, 1]]
    """
    height, width = truth.shape[-2:]
    disc = [
        (dy, dx)
        for dy in range(-min(reach, height - 1), min(reach, height - 1) + 1)
        for dx in range(-min(reach, width - 1), min(reach, width - 1) + 1)
        if 0 < dy * dy + dx * dx <= reach * reach
    ]
    found = truth.clone()
    for dy, dx in sorted(disc, key=lambda shift: shift[0] ** 2 + shift[1] ** 2):
        rows, columns = height - abs(dy), width - abs(dx)
        into = (..., slice(max(-dy, 0), max(-dy, 0) + rows), slice(max(-dx, 0), max(-dx, 0) + columns))
        of = (..., slice(max(dy, 0), max(dy, 0) + rows), slice(max(dx, 0), max(dx, 0) + columns))
        here = found[into]
        found[into] = torch.where(here == ignore_index, truth[of], here)
    return found


def trimap(truth: Tensor, radius: float, ignore_index: int = 255) -> Tensor:
    """The pixels at most ``radius`` from a border pixel of the truth, ``(..., H, W)``.

    >>> trimap(torch.tensor([[0, 0, 255, 255, 1, 1]]), 1).int().tolist()
    [[0, 1, 1, 1, 1, 0]]
    """
    return within(borders(completed(truth, ignore_index), ignore_index), radius)


class BoundaryF:
    """The boundary F-score, averaged over the images in which a class occurs, then over classes.

    ``radius`` is in pixels, or None for 0.75 % of the image's diagonal, as is usual. Of the labels' border,
    what lies on pixels with ``ignore_index`` counts neither as found nor as wrong, but a true border pixel
    near it is found.

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
        whole = completed(truth, self.ignore_index)
        border_of_labels, border_of_truth = borders(predicted), borders(whole, self.ignore_index)
        for label in truth[valid].unique().tolist():
            ours, theirs = border_of_labels & (predicted == label), border_of_truth & (whole == label)
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
