"""Convolution with symmetric taps along each axis of a grid, in plain torch operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def filter(x: Tensor, shape: Sequence[int], taps: Sequence[Tensor]) -> Tensor:
    """``x`` is (images, n, channels) with n in row-major order over ``shape``."""
    y = x.unflatten(1, tuple(shape))
    for axis, half in enumerate(taps, start=1):
        full = torch.cat([half[1:].flip(0), half])
        lines = y.movedim(axis, -1)
        flat = lines.reshape(-1, 1, lines.shape[-1])
        flat = torch.nn.functional.conv1d(flat, full.view(1, 1, -1), padding=len(half) - 1)
        y = flat.view(lines.shape).movedim(-1, axis)
    return y.flatten(1, -2)
