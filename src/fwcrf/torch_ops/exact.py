"""The Gaussian kernel by brute force as a torch operator, in bounded memory."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops import triton_engine
from fwcrf.torch_ops.native import check_finite, differentiated, matmul, register, threads_for, untraced

_CHUNK_BYTES = 16 << 20


def exact_filter(x: Tensor, features: Tensor) -> Tensor:
    """K x for the Gaussian kernel of ``features``; any leading axes."""
    # A view, because torch.compile takes no tensor twice.
    return _Exact.apply(x, features, features.view_as(features), True)


def exact_block(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2) x_j, ``(*batch, rows, channels)``."""
    return _Exact.apply(x, rows, columns, False)


def exact_sums(rows: Tensor, columns: Tensor) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2), ``(*batch, rows)``."""
    learned = differentiated(rows, columns)
    if not learned and triton_engine.serves(rows):
        from fwcrf.torch_ops import lattice_fit_triton

        flat = (t.reshape(-1, *t.shape[-2:]) for t in (rows, columns))
        return lattice_fit_triton.gaussian_sums(*flat).view(rows.shape[:-1])
    if not untraced(rows):
        return _Exact.apply(columns.new_ones(*columns.shape[:-1], 1), rows, columns, False).squeeze(-1)
    return _Sums.apply(rows, columns) if learned else _sums(rows, columns)  # type: ignore[return-value]


def _sums(rows: Tensor, columns: Tensor) -> Tensor:
    out = rows.new_empty(rows.shape[:-1])
    left, right = (t.detach().reshape(-1, *t.shape[-2:]).contiguous() for t in (rows, columns))
    work = 4 * out.numel() * columns.shape[-2]
    _core.gaussian_sums(left, right, out.view(-1, rows.shape[-2]), threads_for(work))
    return out


def _filter(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2) x_j with leading axes broadcast."""
    if checked and x.is_cpu:
        check_finite(x, "x")
    batch = torch.broadcast_shapes(x.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    x, rows, columns = (t.expand(*batch, *t.shape[-2:]) for t in (x, rows, columns))
    out = x.new_empty(*batch, rows.shape[-2], x.shape[-1])
    step = max(1, _CHUNK_BYTES // (x.element_size() * max(1, columns.shape[-2])))
    for at in itertools.product(*map(range, batch)):
        for start in range(0, rows.shape[-2], step):
            block = rows[at][start : start + step]
            # The form with a matrix product is faster and loses half the digits.
            distance = torch.cdist(block, columns[at], compute_mode="donot_use_mm_for_euclid_dist")
            out[at][start : start + step] = matmul(distance.square_().mul_(-0.5).exp_(), x[at])
    return out


def _fake(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    batch = torch.broadcast_shapes(x.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    return x.new_empty(*batch, rows.shape[-2], x.shape[-1])


def _batched(
    info: Any, in_dims: Any, x: Tensor, rows: Tensor, columns: Tensor, checked: bool
) -> tuple[Tensor, int]:
    tensors = list(zip((x, rows, columns), in_dims[:3], strict=True))
    rank = max(t.dim() - (d is not None) for t, d in tensors)

    def lead(t: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return t
        t = t.movedim(dim, 0)
        return t.view(t.shape[0], *[1] * (rank + 1 - t.dim()), *t.shape[1:])

    return _exact.registered(*(lead(t, d) for t, d in tensors), checked), 0


_exact = register("exact_filter", _filter, _filter, fake=_fake, batched=_batched)


class _Exact(torch.autograd.Function):
    """The filter; its derivatives in the features are the same filter applied to x times features."""

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
        if needs_columns:
            back, grad_columns = _pull(x, g, columns, rows)
            grad_x, grad_columns = back.sum_to_size(x.shape), grad_columns.sum_to_size(columns.shape)
        elif needs_x:
            grad_x = _Exact.apply(g, columns, rows, False).sum_to_size(x.shape)
        if needs_rows:
            grad_rows = _pull(g, x, rows, columns)[1].sum_to_size(rows.shape)
        return grad_x, grad_rows, grad_columns, None


class _Sums(torch.autograd.Function):
    """Sums of the kernel of few points, whose derivatives in rows and columns share the kernel."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns)
        return _sums(rows, columns)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        rows, columns = ctx.saved_tensors
        g = g.unsqueeze(-1)
        if torch.is_grad_enabled() or not untraced(g):
            ones = columns.new_ones(*columns.shape[:-1], 1)
            return _pull(g, ones, rows, columns)[1], _pull(ones, g, columns, rows)[1]
        weighted = torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")
        weighted.square_().mul_(-0.5).exp_().mul_(g)
        of_rows = torch.matmul(weighted, columns) - rows * weighted.sum(-1, keepdim=True)
        of_columns = torch.matmul(weighted.mT, rows) - columns * weighted.sum(-2).unsqueeze(-1)
        return of_rows, of_columns


def _pull(left: Tensor, right: Tensor, at: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """K right, and sum_j k_ij <left_i, right_j> (other_j - at_i)."""
    outer = (right.unsqueeze(-1) * other.unsqueeze(-2)).flatten(-2)
    both = torch.cat([right.expand(*outer.shape[:-1], -1), outer], -1)
    filtered, moved = _Exact.apply(both, at, other, False).tensor_split([right.shape[-1]], -1)
    moved = moved.unflatten(-1, (right.shape[-1], other.shape[-1]))
    pulled = (left.unsqueeze(-1) * moved).sum(-2)
    return filtered, pulled - at * (left * filtered).sum(-1, keepdim=True)
