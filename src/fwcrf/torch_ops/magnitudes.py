"""Unaries within the limits of ``fwcrf.magnitudes``."""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf.magnitudes import ENERGY, LAMBDA, WEIGHT, refuse_weight

__all__ = ["ENERGY", "LAMBDA", "WEIGHT", "bounded", "is_large", "refuse_weight"]


def bounded(unary: Tensor) -> Tensor:
    """The unary with every row of large numbers relative to its lowest, and labels far above it forbidden.

    >>> bounded(torch.tensor([[1.0, 2.0], [3e38, 3e38], [-1e30, 0.0]]))
    tensor([[1., 2.],
            [0., 0.],
            [0., inf]])
    """
    u = unary.detach()
    large = is_large(u).any(-1, keepdim=True)
    relative = unary - torch.where(large, u.amin(-1, keepdim=True), 0.0)
    return relative.masked_fill(large & (relative.detach() > ENERGY), torch.inf)


def is_large(unary: Tensor) -> Tensor:
    """True for entries beyond ``ENERGY`` that are not +inf."""
    return (unary.abs() > ENERGY) & (unary != torch.inf)
