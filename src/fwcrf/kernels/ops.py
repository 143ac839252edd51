"""The linear filters as torch operators.

Each filter is a custom operator without autograd, so that torch.compile and torch.export see one
opaque node, wrapped in an autograd Function whose backward is the filter again: that gives
reverse-mode derivatives of any order, torch.func and vmap. Forward mode raises an error: a Function that
had it could not be compiled. Kernels for other devices are plain torch.
"""

# pyright: reportRedeclaration=false
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fwcrf import _core
from fwcrf.kernels import lattice_torch, separable_torch
from fwcrf.kernels.operator import check_finite
from fwcrf.memory import empty
from fwcrf.threads import threads_for

_CHUNK_BYTES = 16 << 20


def differentiated(x: Tensor) -> bool:
    """Whether someone may ask for derivatives; a Function takes longer to apply than its operator."""
    # Inside torch.func a tensor does not tell whether an outer transform differentiates it.
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    return (torch.is_grad_enabled() and x.requires_grad) or unpack_dual(x).tangent is not None


# --- exact -------------------------------------------------------------------------------------


@torch.library.custom_op("fwcrf::exact_filter", mutates_args=())
def _exact(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2) x_j with leading axes broadcast."""
    if checked:
        check_finite(x, "x")
    batch = torch.broadcast_shapes(x.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    x, rows, columns = (t.expand(*batch, *t.shape[-2:]) for t in (x, rows, columns))
    out = x.new_empty(*batch, rows.shape[-2], x.shape[-1])
    step = max(1, _CHUNK_BYTES // (x.element_size() * max(1, columns.shape[-2])))
    for at in itertools.product(*map(range, batch)):
        for start in range(0, rows.shape[-2], step):
            some = rows[at][start : start + step]
            # The form with a matrix product is faster and loses half the digits.
            distance = torch.cdist(some, columns[at], compute_mode="donot_use_mm_for_euclid_dist")
            out[at][start : start + step] = distance.square_().mul_(-0.5).exp_() @ x[at]
    return out


@_exact.register_fake
def _(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    batch = torch.broadcast_shapes(x.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    return x.new_empty(*batch, rows.shape[-2], x.shape[-1])


@_exact.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> tuple[Tensor, int]:
    tensors = list(zip((x, rows, columns), in_dims[:3], strict=True))
    rank = max(t.dim() - (d is not None) for t, d in tensors)

    def lead(t: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return t
        t = t.movedim(dim, 0)
        return t.view(t.shape[0], *[1] * (rank + 1 - t.dim()), *t.shape[1:])

    return _exact(*(lead(t, d) for t, d in tensors), checked), 0


class _Exact(torch.autograd.Function):
    """Its derivatives in the features are the same filter applied to x times features."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
        return _exact(x, rows, columns, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, rows, columns = ctx.saved_tensors
        needs_x, needs_rows, needs_columns, _ = ctx.needs_input_grad
        grad_x = grad_rows = grad_columns = None
        if needs_x or needs_columns:
            back = _Exact.apply(g, columns, rows, False)
            grad_x = back.sum_to_size(x.shape)
            if needs_columns:
                grad_columns = _pull(x, g, columns, rows, back).sum_to_size(columns.shape)
        if needs_rows:
            forward = _Exact.apply(x, rows, columns, False)
            grad_rows = _pull(g, x, rows, columns, forward).sum_to_size(rows.shape)
        return grad_x, grad_rows, grad_columns, None


def _pull(left: Tensor, right: Tensor, at: Tensor, other: Tensor, filtered: Tensor) -> Tensor:
    """sum_j k_ij <left_i, right_j> (other_j - at_i), where ``filtered`` is K right."""
    outer = (right.unsqueeze(-1) * other.unsqueeze(-2)).flatten(-2)
    moved = _Exact.apply(outer, at, other, False).unflatten(-1, (right.shape[-1], other.shape[-1]))
    pulled = (left.unsqueeze(-1) * moved).sum(-2)
    return pulled - at * (left * filtered).sum(-1, keepdim=True)


def exact_filter(x: Tensor, features: Tensor) -> Tensor:
    """K x for the Gaussian kernel of ``features``; any leading axes."""
    # As a view, because torch.compile takes no tensor twice.
    return _Exact.apply(x, features, features.view_as(features), True)


def exact_sums(rows: Tensor, columns: Tensor) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2), (*batch, rows, 1)."""
    return _Exact.apply(columns.new_ones(*columns.shape[:-1], 1), rows, columns, False)


# --- lattice -----------------------------------------------------------------------------------


@torch.library.custom_op("fwcrf::lattice_filter", mutates_args=())
def _lattice(
    x: Tensor,  # (images, n, channels)
    index: Tensor,  # (n, corners)
    splat: Tensor,  # (n, corners)
    slice: Tensor | None,  # (n, corners); None where it is `splat`
    neighbors: Tensor,  # (corners, vertices, 2)
    shift: Tensor | None,  # (n)
    tap: float,
    identity: float,
    order: int,
    checked: bool,
) -> Tensor:
    if checked:
        check_finite(x, "x")
    return lattice_torch.filter(x, index, splat, slice, neighbors, shift, tap, identity, order)


@_lattice.register_kernel("cpu")
def _(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        work = x[0].numel() * index.shape[-1]
        finite = _core.filter(
            x.detach(), index, splat, splat if slice is None else slice, neighbors, shift, tap, identity,
            order, out, threads_for(work),
        )  # fmt: skip
        if checked and not finite:
            check_finite(x, "x")
    return out


@_lattice.register_fake
def _(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_lattice.register_vmap
def _(info, in_dims, x, *rest):  # type: ignore
    if any(d is not None for d in in_dims[1:]):
        raise ValueError("vmap over a lattice filter takes batches of x, not of lattices.")
    x = x.movedim(in_dims[0], 0)
    return _lattice(x.flatten(0, 1), *rest).unflatten(0, x.shape[:2]), 0


_TRANSPOSED = {0: 0, 1: 2, 2: 1}


class _Lattice(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
        return _lattice(x, index, splat, slice, neighbors, shift, tap, identity, order, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, index, splat, slice, neighbors, shift, ctx.tap, ctx.identity, ctx.order, _ = inputs
        ctx.save_for_backward(index, splat, slice, neighbors, shift)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        index, splat, slice, neighbors, shift = ctx.saved_tensors
        order = _TRANSPOSED[ctx.order]
        # Gradients may overflow on purpose (loss scaling): what to do about it is the caller's.
        if slice is not None:
            splat, slice = slice, splat
        out = _Lattice.apply(g, index, splat, slice, neighbors, shift, ctx.tap, ctx.identity, order, False)
        return (out, *[None] * 9)


def lattice_filter(
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
    """diag(shift) x + slice (blur + identity I) splat' x, linear in x; see ``Lattice``."""
    arguments = (x, index, splat, slice, neighbors, shift, tap, identity, order, True)
    return _Lattice.apply(*arguments) if differentiated(x) else _lattice(*arguments)


# --- separable ---------------------------------------------------------------------------------


@torch.library.custom_op("fwcrf::axis_filter", mutates_args=())
def _axis(x: Tensor, taps: Tensor, checked: bool) -> Tensor:
    if checked:
        check_finite(x, "x")
    return separable_torch.filter(x, taps)


@_axis.register_kernel("cpu")
def _(x, taps, checked):  # type: ignore
    if checked:
        check_finite(x, "x")
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        _core.filter_axis(x.detach(), taps.detach(), out, threads_for(x.numel() * taps.numel()))
    return out


@_axis.register_fake
def _(x, taps, checked):  # type: ignore
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_axis.register_vmap
def _(info, in_dims, x, taps, checked):  # type: ignore
    if in_dims[1] is not None:
        raise ValueError("vmap over a separable filter takes batches of x, not of taps.")
    x = x.movedim(in_dims[0], 0)
    return _axis(x.flatten(0, 1), taps, checked).unflatten(0, x.shape[:2]), 0


class _Axis(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, taps, checked):  # type: ignore
        return _axis(x, taps, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _Axis.apply(g, ctx.saved_tensors[0], False), None, None


def separable_filter(x: Tensor, shape: Sequence[int], taps: Sequence[Tensor]) -> Tensor:
    """Symmetric taps along each grid axis of ``x`` (images, n, channels), zero outside the grid."""
    y = x
    for axis, half in enumerate(taps):
        outer = x.shape[0] * math.prod(shape[:axis])
        inner = math.prod(shape[axis + 1 :]) * x.shape[-1]
        arguments = (y.reshape(outer, shape[axis], inner), half, axis == 0)
        if half.requires_grad and torch.is_grad_enabled():
            # Autograd sees through this one: gradients reach the taps, and so the bandwidths.
            y = separable_torch.filter(arguments[0], half)
        else:
            y = _Axis.apply(*arguments) if differentiated(x) else _axis(*arguments)
    return y.reshape(x.shape)
