"""Convolution with symmetric taps along one axis of a grid in Triton: a launch per axis."""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ENTRIES = 1024  # of a block


@triton.jit
def axis_kernel(
    x,  # (outer, length, inner)
    taps,  # (reach), from the centre outwards
    left,  # (length), factors of the rows, read if SCALED
    right,  # (length), factors of the columns, read if SCALED
    origin,  # (outer, length, inner), read if SHIFTED
    shift,  # (points), read if SHIFTED
    out,  # (outer, length, inner)
    length,
    inner,
    reach,
    points,
    channels,
    SCALED: tl.constexpr,
    SHIFTED: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """out = diag(left) T diag(right) x + diag(shift) origin, with T the taps along the length."""
    line = tl.program_id(1).to(tl.int64) * length * inner
    entry = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    inside = entry < length * inner
    place = entry // inner
    total = tl.zeros((ENTRIES,), dtype=out.dtype.element_ty)
    for step in range(1 - reach, reach):
        at = place + step
        there = inside & (at >= 0) & (at < length)
        value = tl.load(x + line + entry + step * inner, mask=there, other=0.0)
        if SCALED:
            value *= tl.load(right + at, mask=there, other=0.0)
        total += tl.load(taps + tl.abs(step)) * value
    if SCALED:
        total *= tl.load(left + place, mask=inside, other=0.0)
    if SHIFTED:
        own = tl.load(shift + (line + entry) // channels % points, mask=inside, other=0.0)
        total += own * tl.load(origin + line + entry, mask=inside, other=0.0)
    tl.store(out + line + entry, total, mask=inside)


def filter(
    x: Tensor,
    taps: Tensor,
    left: Tensor | None = None,
    right: Tensor | None = None,
    origin: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """x (outer, length, inner) convolved along the length; both or none of ``left`` and ``right``.

    Plus ``diag(shift) origin`` with origin ``(images, points, channels)``, if given.
    """
    x, taps = x.detach().contiguous(), taps.detach().to(x.dtype).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        outer, length, inner = x.shape
        scales = (taps, taps) if left is None or right is None else (left.to(x.dtype), right.to(x.dtype))
        added = (x, taps) if origin is None or shift is None else (origin.detach(), shift.to(x.dtype))
        added = tuple(t.contiguous() for t in added)
        points, channels = (1, 1) if origin is None else origin.shape[1:]
        axis_kernel[(triton.cdiv(length * inner, ENTRIES), outer)](
            x, taps, *scales, *added, out, length, inner, len(taps), points, channels,
            SCALED=left is not None, SHIFTED=origin is not None, ENTRIES=ENTRIES,
        )  # fmt: skip
    return out
