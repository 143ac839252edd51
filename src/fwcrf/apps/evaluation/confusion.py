"""Confusion matrix over a data set, with IoU and accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Confusion:
    """Confusion matrix: ``matrix[t, p]`` is the number of pixels of class t that were labelled p.

    Pixels whose true label is ``ignore_index`` are ignored. The intersection over union of a class is
    M_cc / (sum_p M_cp + sum_t M_tc - M_cc), and nan for a class that does not occur. M sums over all images,
    so the IoU is not a mean over images.

    >>> confusion = Confusion(3)
    >>> confusion.update(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 255]))
    >>> confusion.iou()
    tensor([0.5000, 0.5000,    nan], dtype=torch.float64)
    """

    def __init__(self, num_classes: int, ignore_index: int = 255) -> None:
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self.matrix: Tensor = torch.zeros(num_classes, num_classes, dtype=torch.int64)

    def update(self, predicted: Tensor, truth: Tensor, where: Tensor | None = None) -> None:
        """Count an image or a batch; only the pixels in the mask ``where``, if given."""
        if predicted.shape != truth.shape:
            raise ValueError(
                f"predicted labels have shape {tuple(predicted.shape)} and true ones {tuple(truth.shape)}; "
                "expected the same."
            )
        L, valid = self.num_classes, truth != self.ignore_index
        if where is not None:
            valid &= where
        p, t = predicted[valid].long(), truth[valid].long()
        for name, labels in (("predicted", p), ("true", t)):
            if labels.numel() and not 0 <= labels.min() <= labels.max() < L:
                raise ValueError(
                    f"a {name} label is {labels.min()} or {labels.max()}; expected 0 to "
                    + (f"{L - 1}, or {self.ignore_index} to ignore." if name == "true" else f"{L - 1}.")
                )
        self.matrix += torch.bincount(t * L + p, minlength=L * L).view(L, L).cpu()

    def iou(self) -> Tensor:
        """IoU per class, in float64; nan for a class that does not occur."""
        M = self.matrix.double()
        both = M.diagonal()
        return both / (M.sum(0) + M.sum(1) - both)

    def mean_iou(self, classes: Sequence[int] | None = None) -> float:
        """Mean IoU over ``classes``, by default all classes that occur in the truth or in the labels."""
        iou = self.iou()
        if classes is None:
            return iou.nanmean().item()
        return iou[list(classes)].mean().item()

    def present(self) -> list[int]:
        """Classes that occur in the truth."""
        return self.matrix.sum(1).nonzero().flatten().tolist()

    def accuracy(self) -> float:
        """Share of correctly labelled pixels."""
        M = self.matrix.double()
        return (M.diagonal().sum() / M.sum()).item()
