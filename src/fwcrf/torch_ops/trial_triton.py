"""The smallest Triton kernel, to find out whether Triton works."""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def trial_kernel(out):
    """out = 1."""
    tl.store(out, 1)


def run(device: torch.device) -> None:
    """Launch the kernel, and wait for it: errors of a launch arrive late."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    trial_kernel[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a kernel that writes 1 did not")
