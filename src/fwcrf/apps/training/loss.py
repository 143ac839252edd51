"""The loss of labels, as a sum over pixels, so that micro-batches and processes add up."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fwcrf.apps.training.config import Loss
from fwcrf.losses import boundary_weights, lovasz_softmax


def pixel_weights(labels: Tensor, loss: Loss, ignore_index: int) -> Tensor:
    """The weight of each pixel in the cross-entropy: 1, more near borders, 0 without a label."""
    if not loss.boundary:
        return (labels != ignore_index).float()
    return boundary_weights(labels, strength=loss.boundary, width=loss.width, ignore_index=ignore_index)


def cross_entropy(log_p: Tensor, labels: Tensor, weights: Tensor, ignore_index: int) -> Tensor:
    """The sum of -log p(label) over the pixels, times their weights."""
    return (weights * F.nll_loss(log_p, labels, ignore_index=ignore_index, reduction="none")).sum()


def label_loss(log_p: Tensor, labels: Tensor, weights: Tensor, loss: Loss, ignore_index: int) -> Tensor:
    """Cross-entropy and Lovasz-softmax of some images, times the sum of the weights of their pixels."""
    found = cross_entropy(log_p, labels, weights, ignore_index)
    if not loss.lovasz:
        return found
    return found + loss.lovasz * weights.sum() * lovasz_softmax(
        log_p.exp(), labels, ignore_index=ignore_index
    )
