"""Convolution with symmetric taps along one axis of a grid, in plain torch operations."""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf.torch_ops.native import full_precision


def filter(x: Tensor, taps: Tensor) -> Tensor:
    """x (outer, length, inner), zero outside, convolved along ``length``; taps run from centre outwards."""
    full = torch.cat([taps[1:].flip(0), taps]).view(1, 1, -1)
    lines = x.movedim(1, -1)
    rows = lines.reshape(-1, 1, lines.shape[-1])
    if x.is_cuda:
        # cuDNN would round floats to the 10 bits of TF32.
        rows, full = rows.double(), full.double()
    with full_precision(x):
        flat = torch.nn.functional.conv1d(rows, full, padding=len(taps) - 1)
    return flat.to(x.dtype).view(lines.shape).movedim(-1, 1).contiguous()
