"""Convolution of a grid with symmetric taps along each axis as a torch operator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops import separable_torch, triton_engine
from fwcrf.torch_ops.native import check_finite, differentiated, empty, register, threads_for, untraced


def separable_filter(x: Tensor, shape: Sequence[int], taps: Sequence[Tensor]) -> Tensor:
    """Symmetric taps along each grid axis of ``x`` (images, n, channels), zero outside the grid."""
    y = x
    for axis, half in enumerate(taps):
        outer = x.shape[0] * math.prod(shape[:axis])
        inner = math.prod(shape[axis + 1 :]) * x.shape[-1]
        arguments = (y.reshape(outer, shape[axis], inner), half, axis == 0)
        learned = half.requires_grad and torch.is_grad_enabled()
        if learned and (not untraced(x) or x.dtype != half.dtype):
            # Autograd sees through these operations: gradients reach the taps, and so the bandwidths.
            y = separable_torch.filter(arguments[0], half)
        else:
            y = _Axis.apply(*arguments) if learned or differentiated(x) else _axis(*arguments)
    return y.reshape(x.shape)


def scaled_on_gpu(
    x: Tensor,
    shape: Sequence[int],
    taps: Sequence[Tensor],
    left: Sequence[Tensor] | None,
    right: Sequence[Tensor] | None,
    shift: Tensor | None = None,
) -> Tensor | None:
    """``separable_filter`` between scales of the rows and columns of each axis, in a launch per axis.

    Plus diag(shift) x, with shift ``(n)``. None without Triton, or if the taps are learned.
    """
    given = [*taps, *(left or ()), *(right or ()), *(() if shift is None else (shift,))]
    if not triton_engine.serves(x) or (torch.is_grad_enabled() and any(t.requires_grad for t in given)):
        return None
    arguments = (x, tuple(shape), tuple(taps), left, right, shift)
    return _Scaled.apply(*arguments) if differentiated(x) else _scaled(*arguments)  # type: ignore[return-value]


def _scaled(x: Tensor, shape: Any, taps: Any, left: Any, right: Any, shift: Tensor | None) -> Tensor:
    from fwcrf.torch_ops import separable_triton

    y = x
    for axis, half in enumerate(taps):
        outer = x.shape[0] * math.prod(shape[:axis])
        lines = y.reshape(outer, shape[axis], -1)
        scales = (None, None) if left is None else (left[axis], right[axis])
        added = (x, shift) if shift is not None and axis == len(taps) - 1 else (None, None)
        y = separable_triton.filter(lines, half, *scales, *added)
    return y.view(x.shape)


class _Scaled(torch.autograd.Function):
    """Linear in x; the transposed filter exchanges the scales."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: Any, taps: Any, left: Any, right: Any, shift: Any) -> Tensor:
        ctx.settings = shape, taps, right, left, shift
        return _scaled(x, shape, taps, left, right, shift)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _Scaled.apply(g, *ctx.settings), None, None, None, None, None  # type: ignore[return-value]


def _portable(x: Tensor, taps: Tensor, checked: bool) -> Tensor:
    if triton_engine.serves(x):
        from fwcrf.torch_ops import separable_triton

        return separable_triton.filter(x, taps)
    return separable_torch.filter(x, taps)


def _native(x: Tensor, taps: Tensor, checked: bool) -> Tensor:
    if checked:
        check_finite(x, "x")
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        _core.filter_axis(x.detach(), taps.detach(), out, threads_for(x.numel() * taps.numel()))
    return out


def _batched(info: Any, in_dims: Any, x: Tensor, taps: Tensor, checked: bool) -> tuple[Tensor, int]:
    if in_dims[1] is not None:
        raise ValueError("vmap over a separable filter takes batches of x, not of taps.")
    x = x.movedim(in_dims[0], 0)
    return _axis.registered(x.flatten(0, 1), taps, checked).unflatten(0, x.shape[:2]), 0


_axis = register("axis_filter", _portable, _native, batched=_batched)


class _Axis(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, taps: Tensor, checked: bool) -> Tensor:
        return _axis(x, taps, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, taps, _ = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, taps)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, taps = ctx.saved_tensors
        of_taps = _TapSlopes.apply(g, x, len(taps)) if ctx.needs_input_grad[1] else None
        return _Axis.apply(g, taps, False), of_taps, None  # type: ignore[return-value]


class _TapSlopes(torch.autograd.Function):
    """The derivative of <g, filtered x> in each tap: linear in both, and the filter is symmetric."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(g, x)
        found = torch.empty(count, dtype=torch.float64, device="cpu")
        given, values = g.detach().contiguous(), x.detach().contiguous()
        _core.tap_slopes(given, values, found, threads_for(2 * x.numel() * count))
        return found.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        g, x = ctx.saved_tensors
        return _Axis.apply(x, v, False), _Axis.apply(g, v, False), None  # type: ignore[return-value]
