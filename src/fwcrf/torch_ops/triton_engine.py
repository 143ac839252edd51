"""Whether Triton's kernels can serve a tensor: asked before any of the modules ``*_triton`` is imported."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from fwcrf.torch_ops.native import FLOATS, transformed, warn_caller


def serves(x: Tensor) -> bool:
    """True for floats on a GPU where Triton works, unless torch traces or transforms the call."""
    return x.is_cuda and x.dtype in FLOATS and not transformed(x) and works(x.device)


@cache
def works(device: torch.device) -> bool:
    """True if a Triton kernel runs on the device; a warning if Triton is installed and none does."""
    if find_spec("triton") is None:
        return False
    try:
        _try(device)
    # Triton raises errors of many kinds: without a C compiler, a driver, or support for the GPU.
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        warn_caller(
            f"Triton is installed and cannot run a kernel on {device} ({reason[:300]}). Plain torch is used "
            "instead, with the same results in more time. Triton needs a C compiler: install one, or set "
            "the variable CC to its path."
        )
        return False
    return True


def _try(device: torch.device) -> None:
    """Run a kernel; its compilation, and the first one's of a launcher in C, take about a second."""
    from fwcrf.torch_ops import trial_triton

    trial_triton.run(device)
