"""The widest floating-point numbers of a device, and running sums that every run adds in the same order."""

from __future__ import annotations

import torch
from torch import Tensor

# Devices without double precision.
_SINGLE = {"mps"}


def widest(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device that has no float64 (Metal, and some GPUs of Intel)."""
    if device.type in _SINGLE:
        return torch.float32
    if device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64:
        return torch.float32
    return torch.float64


def wide(x: Tensor) -> Tensor:
    """x in the widest floating-point numbers of its device."""
    return x.to(widest(x.device))


def running_sums(x: Tensor) -> Tensor:
    """``x.cumsum(-1)``; on a GPU by additions whose order is fixed, if torch must be deterministic.

    torch's own has no deterministic form for floats on CUDA.

    >>> running_sums(torch.tensor([1.0, 2.0, 4.0]))
    tensor([1., 3., 7.])
    """
    if not (x.is_cuda and torch.are_deterministic_algorithms_enabled()):
        return x.cumsum(-1)
    step = 1
    while step < x.shape[-1]:
        x = x + torch.nn.functional.pad(x[..., :-step], (step, 0))
        step *= 2
    return x
