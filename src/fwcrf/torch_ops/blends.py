"""Sums of whole arrays times learned numbers, whose derivatives take few passes over the arrays."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fwcrf.torch_ops.native import empty, untraced

_AT_ONCE = 1 << 16  # entries that stay in the second-level cache


def blend(x: Tensor, y: Tensor, share: Tensor) -> Tensor:
    """(1 - share) x + share y, for a tensor with one number."""
    return _Blend.apply(x, y, share)  # type: ignore[return-value]


def affine(x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
    """scale x + offset, for a tensor with one number and an offset that is broadcast along the last axis."""
    return _Affine.apply(x, scale, offset)  # type: ignore[return-value]


class _OfInputs(torch.autograd.Function):
    """A function whose derivative needs its inputs only."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)


class _Blend(_OfInputs):
    @staticmethod
    def forward(x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        return torch.lerp(x, y, share)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        x, y, share = ctx.saved_tensors
        if _traced(g):
            of_y = g * share
            return g - of_y, of_y, (g * (y - x)).sum().to(share)
        of_y = torch.mul(g, share, out=empty(g.shape, g.dtype))
        return torch.sub(g, of_y, out=empty(g.shape, g.dtype)), of_y, _inner(g, y, x).to(share)


class _Affine(_OfInputs):
    @staticmethod
    def forward(x: Tensor, scale: Tensor, offset: Tensor) -> Tensor:
        return torch.addcmul(offset, x, scale)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, scale, offset = ctx.saved_tensors
        needs_x, needs_scale, needs_offset = ctx.needs_input_grad
        of_scale = None
        if needs_scale:
            of_scale = ((g * x).sum() if _traced(g) else _inner(g, x)).to(scale)
        of_offset = g.sum(-1, keepdim=True).sum_to_size(offset.shape) if needs_offset else None
        return g * scale if needs_x else None, of_scale, of_offset


def _traced(g: Tensor) -> bool:
    """True if derivatives of the gradient may be asked for, or its numbers cannot be read."""
    return torch.is_grad_enabled() or not untraced(g)


def _inner(g: Tensor, x: Tensor, less: Tensor | None = None) -> Tensor:
    """<g, x - less> over all entries, in float64 over parts of the arrays."""
    parts = [t.flatten().split(_AT_ONCE) for t in (g, x, less) if t is not None]
    sums = [torch.dot(a, b[0] if len(b) == 1 else b[0] - b[1]) for a, *b in zip(*parts, strict=True)]
    return torch.stack(sums).sum(dtype=torch.float64)
