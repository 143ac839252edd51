"""Maps of rows over labels in Triton: two oracles, and a Potts term added to a gradient, a launch each."""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

import struct

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries of a block; rows with more labels are left to torch.
BLOCK, MOST_LABELS = 2048, 4096


def takes(x: Tensor) -> bool:
    """True if the rows of x fit into a block."""
    return x.shape[-1] <= MOST_LABELS


@triton.jit(do_not_specialize=["bits"])
def project_kernel(v, out, rows, labels, bits: tl.int64, ROWS: tl.constexpr, LABELS: tl.constexpr):
    """The point of the simplex nearest to scale v, row by row.

    The threshold of a set of labels is (their sum - 1) / their number. Labels at or below it leave the set,
    which only raises it, until none does.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    label = tl.arange(0, LABELS)
    mask = (row < rows)[:, None] & (label < labels)[None, :]
    place = row[:, None] * labels + label[None, :]
    scale = bits.to(tl.float64, bitcast=True)
    u = tl.load(v + place, mask=mask, other=0.0) * scale.to(out.dtype.element_ty)
    u = tl.where(mask, u, -float("inf"))
    most = tl.max(u, 1)
    # NaN in, or no finite largest entry: NaN out.
    bad = (tl.max((u != u).to(tl.int32), 1) > 0) | (most - most != 0)
    u = tl.where(bad[:, None] | (row >= rows)[:, None], 0.0, u - most[:, None])
    within = u > -float("inf")
    open_ = row < rows
    while tl.max(open_.to(tl.int32), 0) > 0:
        threshold = (tl.sum(tl.where(within, u, 0.0), 1) - 1) / tl.sum(within.to(u.dtype), 1)
        stays = within & (u > threshold[:, None])
        open_ = tl.max((within & ~stays).to(tl.int32), 1) > 0
        within = stays
    final = (tl.sum(tl.where(within, u, 0.0), 1) - 1) / tl.sum(within.to(u.dtype), 1)
    p = tl.where(within, u - final[:, None], 0.0)
    # No row is open here. Triton 3.7 cannot compile a loop that carries a value which is not read after it.
    p = tl.where((bad | open_)[:, None], float("nan"), p)
    tl.store(out + place, p, mask=mask)


@triton.jit(do_not_specialize=["bits"])
def softmax_kernel(v, out, rows, labels, bits: tl.int64, ROWS: tl.constexpr, LABELS: tl.constexpr):
    """exp(scale v) over its sum, row by row."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    label = tl.arange(0, LABELS)
    mask = (row < rows)[:, None] & (label < labels)[None, :]
    place = row[:, None] * labels + label[None, :]
    scale = bits.to(tl.float64, bitcast=True)
    u = tl.load(v + place, mask=mask, other=0.0) * scale.to(out.dtype.element_ty)
    u = tl.where(mask, u, -float("inf"))
    u = tl.where((row < rows)[:, None], u, 0.0)
    nan = tl.max((u != u).to(tl.int32), 1) > 0
    e = tl.exp(u - tl.max(u, 1)[:, None])
    p = tl.where(nan[:, None], float("nan"), e / tl.sum(e, 1)[:, None])
    tl.store(out + place, p, mask=mask)


@triton.jit
def potts_kernel(
    y, base, weight, out, rows, labels, ADDED: tl.constexpr, ROWS: tl.constexpr, LABELS: tl.constexpr
):
    """base + weight (the sum of the row - y)."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    label = tl.arange(0, LABELS)
    mask = (row < rows)[:, None] & (label < labels)[None, :]
    place = row[:, None] * labels + label[None, :]
    values = tl.load(y + place, mask=mask, other=0.0)
    result = tl.load(weight) * (tl.sum(values, 1)[:, None] - values)
    if ADDED:
        result += tl.load(base + place, mask=mask, other=0.0)
    tl.store(out + place, result, mask=mask)


def _blocks(x: Tensor) -> tuple[tuple[int], dict[str, int]]:
    width = triton.next_power_of_2(x.shape[-1])
    height = max(1, BLOCK // width)
    rows = x.numel() // x.shape[-1]
    return (triton.cdiv(rows, height),), {"ROWS": height, "LABELS": width}


def _mapped(kernel, v: Tensor, scale: float) -> Tensor:
    v = v.detach().contiguous()
    out = torch.empty_like(v)
    if v.numel():
        grid, blocks = _blocks(v)
        # As an argument, a number has single precision: the bits of a double go as an integer.
        (bits,) = struct.unpack("q", struct.pack("d", scale))
        kernel[grid](v, out, v.numel() // v.shape[-1], v.shape[-1], bits, **blocks)
    return out


def project(v: Tensor, scale: float) -> Tensor:
    """``simplex.project_onto_simplex`` without derivatives."""
    return _mapped(project_kernel, v, scale)


def softmax(v: Tensor, scale: float) -> Tensor:
    """``simplex.softmax`` without derivatives."""
    return _mapped(softmax_kernel, v, scale)


def potts(y: Tensor, base: Tensor | None, weight: Tensor) -> Tensor:
    """base + weight (total - y), the total over the labels; weight is one number on the device."""
    y = y.detach().contiguous()
    out = torch.empty_like(y)
    if y.numel():
        grid, blocks = _blocks(y)
        given = y if base is None else base.detach().contiguous()
        kernel = potts_kernel[grid]
        kernel(y, given, weight, out, y.numel() // y.shape[-1], y.shape[-1], ADDED=base is not None, **blocks)
    return out
