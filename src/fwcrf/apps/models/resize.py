"""Interpolation of scores from a network's coarse grid to the pixels of its image."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def bilinear(scores: Tensor, size: tuple[int, int]) -> Tensor:
    """Scores ``(B, L, *size)`` from ``(B, L, h, w)``; the outer edges of both grids coincide."""
    return F.interpolate(scores, size=size, mode="bilinear", align_corners=False)


def from_grid(scores: Tensor, stride: int, size: tuple[int, int]) -> Tensor:
    """Scores ``(B, L, *size)`` from ``(B, L, h, w)``: pixel (y, x) is at (y / stride, x / stride).

    This is the geometry of networks whose strided layers keep every second pixel of an odd number. The grid
    covers stride (h - 1) + 1 pixels; the result is cropped to ``size``.

    >>> import torch
    >>> from_grid(torch.tensor([[[[0.0, 8.0], [0.0, 8.0]]]]), 4, (1, 5)).flatten()
    tensor([0., 2., 4., 6., 8.])
    """
    h, w = scores.shape[-2:]
    full = (stride * (h - 1) + 1, stride * (w - 1) + 1)
    if size[0] > full[0] or size[1] > full[1]:
        raise ValueError(
            f"a grid of {h} x {w} at stride {stride} covers {full[0]} x {full[1]} pixels; size is {size}."
        )
    resized = F.interpolate(scores, size=full, mode="bilinear", align_corners=True)
    return resized[..., : size[0], : size[1]]
