"""A gradient plus a Potts term, on GPUs, in one launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fwcrf.torch_ops.native import differentiated


def added_potts(y: Tensor, base: Tensor | None, weight: Tensor) -> Tensor:
    """base + weight (the sum of the row - y), for a number ``weight`` on the device of y."""
    if base is not None and differentiated(y, base, weight):
        return _AddedPotts.apply(y, base.expand_as(y), weight)  # type: ignore[return-value]
    return _added(y, base, weight)


def _added(y: Tensor, base: Tensor | None, weight: Tensor) -> Tensor:
    from fwcrf.torch_ops import rows_triton

    if rows_triton.takes(y):
        return rows_triton.potts(y, None if base is None else base.expand_as(y), weight)
    term = weight * (y.sum(-1, keepdim=True) - y)
    return term if base is None else base + term


class _AddedPotts(torch.autograd.Function):
    """Linear in y by a symmetric matrix, and in the weight."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, base: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(y if ctx.needs_input_grad[2] else None, weight)
        return _added(y, base, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        y, weight = ctx.saved_tensors
        of_y = of_weight = None
        if ctx.needs_input_grad[0]:
            of_y = weight * (g.sum(-1, keepdim=True) - g)
        if y is not None:
            of_weight = (g * (y.sum(-1, keepdim=True) - y)).sum()
        return of_y, g, of_weight
