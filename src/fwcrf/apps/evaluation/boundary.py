"""Accuracy of labels near the borders of objects.

The *trimap* IoU is the IoU of the pixels within distance r of a true border: a confusion matrix with
``where=trimap(truth, r)``. The *boundary F-score* compares the borders themselves, per class and image:
precision is the share of the labels' border within r of the true border, recall is the share of the true
border within r of the labels' border.

Distances are Euclidean, in pixels. A border pixel of a region has at least one of its four neighbours outside
the region. The edge of the image is not a border.

Ignored pixels have no border. In PASCAL VOC a narrow band of ignored pixels surrounds each object, and the
true border lies somewhere in the band. To find it, an ignored pixel within ``BAND`` of a labelled pixel gets
the label of the nearest labelled pixel, which puts the border in the middle of the band. Ignored pixels
farther away, for example of an unlabelled object, stay ignored.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fwcrf.torch_ops.printed import in_one_line

# Half the width of two adjacent bands of PASCAL VOC, which are five pixels wide each.
BAND = 5


def borders(labels: Tensor, ignore_index: int = 255) -> Tensor:
    """Mask ``(..., H, W)`` of the pixels with a neighbour of another label, on both sides of a border.

    ``ignore_index`` is not another label.

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
    """Mask ``(..., H, W)`` of the pixels at most ``radius`` from a pixel of ``mask``.

    >>> within(torch.tensor([[0, 0, 0, 1, 0]]).bool(), 1.5).int().tolist()
    [[0, 0, 1, 1, 1]]
    """
    height, width = mask.shape[-2:]
    flat = mask.reshape(1, -1, height, width).float()
    found = torch.zeros_like(flat)
    reach = min(math.floor(radius), height - 1)
    for shift in range(-reach, reach + 1):
        # One row of the disc: dilate horizontally by half, then shift vertically.
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
    """Labels ``(..., H, W)``; ignored pixels within ``reach`` of a label get the nearest label.

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
    """Mask ``(..., H, W)`` of the pixels at most ``radius`` from a true border pixel.

    >>> trimap(torch.tensor([[0, 0, 255, 255, 1, 1]]), 1).int().tolist()
    [[0, 1, 1, 1, 1, 0]]
    """
    return within(borders(completed(truth, ignore_index), ignore_index), radius)


class BoundaryF:
    """The boundary F-score, averaged over the images in which a class occurs, then over classes.

    ``radius`` is in pixels, or None for the usual 0.75 % of the image's diagonal. Ignored pixels of the
    labels' border are left out of the precision, but count for the recall of true border pixels near them.

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

    def update(self, predicted: Tensor, truth: Tensor, whole: Tensor | None = None) -> None:
        """Count one image, ``(H, W)``. ``whole`` is ``completed(truth)``, if the caller has it already."""
        if predicted.shape != truth.shape or truth.dim() != 2:
            raise ValueError(
                f"predicted labels have shape {tuple(predicted.shape)} and true ones {tuple(truth.shape)}; "
                "expected (height, width) of one image, the same."
            )
        radius = 0.0075 * math.hypot(*truth.shape) if self.radius is None else self.radius
        valid = truth != self.ignore_index
        whole = completed(truth, self.ignore_index) if whole is None else whole
        L = self.num_classes
        true_labels = truth[valid].long()
        if true_labels.numel() and not 0 <= true_labels.min() <= true_labels.max() < L:
            raise ValueError(
                f"a true label is {true_labels.min()} or {true_labels.max()}; expected 0 to {L - 1}, "
                f"or {self.ignore_index} to ignore."
            )
        marked = _Border.of(predicted, borders(predicted), L)
        true = _Border.of(whole, borders(whole, self.ignore_index), L)
        inside = valid.flatten()[marked.where]
        is_right, is_found = marked.near(true, radius), true.near(marked, radius)
        numbers = [
            torch.bincount(true_labels, minlength=L),
            *(each.count(L) for each in (true, true.only(is_found), marked, marked.only(inside))),
            marked.only(inside & is_right).count(L),
        ]
        for label, (area, border, found, drawn, counted, right) in enumerate(zip(*numbers, strict=True)):
            if not area or not border:
                continue
            precision = (right / counted).item() if counted else float(drawn > 0)
            recall = (found / border).item()
            self.sums[label] += 2 * precision * recall / (precision + recall) if precision + recall else 0.0
            self.counts[label] += 1

    def per_class(self) -> Tensor:
        """F-score per class, in float64; nan for a class without a border."""
        return self.sums / self.counts

    def mean(self) -> float:
        return self.per_class().nanmean().item()


class _Border(NamedTuple):
    """Border pixels with their labels. They are few: looking around each is faster than whole-image masks."""

    size: tuple[int, int]  # of the image
    where: Tensor  # row * width + column
    labels: Tensor

    __repr__ = in_one_line

    @staticmethod
    def of(labels: Tensor, mask: Tensor, num_classes: int) -> _Border:
        """The pixels of a mask, without labels that are no class."""
        where = mask.flatten().nonzero()[:, 0]
        own = labels.flatten()[where].long()
        known = (own >= 0) & (own < num_classes)
        return _Border((labels.shape[0], labels.shape[1]), where[known], own[known])

    def only(self, chosen: Tensor) -> _Border:
        return _Border(self.size, self.where[chosen], self.labels[chosen])

    def count(self, num_classes: int) -> Tensor:
        """The number of pixels of each class."""
        return torch.bincount(self.labels, minlength=num_classes)

    def near(self, other: _Border, radius: float) -> Tensor:
        """Mask of the pixels at most ``radius`` from a pixel of ``other`` with their own label."""
        reach, (height, width) = math.floor(radius), self.size
        wide = width + 2 * reach
        there = self.labels.new_full(((height + 2 * reach) * wide,), -1)
        there[other._in(wide, reach)] = other.labels
        here = self._in(wide, reach)
        found = torch.zeros_like(self.labels, dtype=torch.bool)
        for dy in range(-reach, reach + 1):
            half = math.floor(math.sqrt(radius**2 - dy**2))
            for dx in range(-half, half + 1):
                found |= there.index_select(0, here + (dy * wide + dx)) == self.labels
        return found

    def _in(self, wide: int, reach: int) -> Tensor:
        """Indices of the pixels in an image of width ``wide``, with a frame of width ``reach``."""
        width = self.size[1]
        row = torch.div(self.where, width, rounding_mode="floor")
        return self.where + reach * (wide + 1) + row * (wide - width)
