"""The lattice filter on devices other than the CPU: Triton on GPUs if it is installed, else plain torch."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from types import ModuleType

from torch import Tensor

from fwcrf.torch_ops import lattice_torch


@cache
def triton_engine() -> ModuleType | None:
    """The Triton engine, imported on first use because it is slow to import; None if not installed."""
    if find_spec("triton") is None:
        return None
    from fwcrf.torch_ops import lattice_triton

    return lattice_triton


def filter(
    x: Tensor,
    index: Tensor,
    splat: Tensor,
    slice: Tensor | None,
    neighbors: Tensor,
    shift: Tensor | None,
    tap: float,
    identity: float,
    order: int,
) -> Tensor:
    """diag(shift) x + slice (blur + identity I) splat' x, without waiting for the device."""
    triton = triton_engine() if x.is_cuda else None
    engine = triton if triton is not None and triton.takes(x) else lattice_torch
    return engine.filter(x, index, splat, slice, neighbors, shift, tap, identity, order)
