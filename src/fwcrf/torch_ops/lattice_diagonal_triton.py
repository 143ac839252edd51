"""The diagonal of a lattice kernel in Triton: one launch."""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

POINTS = 128  # of a block


@triton.jit
def diagonal_kernel(
    weight,  # (n, CORNERS)
    index,  # (n, CORNERS)
    order,  # (n, WORDS), five bits an axis, twelve axes a word
    neighbors,  # (CORNERS, vertices, 2)
    out,  # (n)
    n,
    vertices,
    TAP: tl.constexpr,
    IDENTITY: tl.constexpr,
    WORDS: tl.constexpr,
    CORNERS: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Steps along all axes cancel, so two chains of neighbours join two corners: both are walked."""
    point = tl.program_id(0).to(tl.int64) * POINTS + tl.arange(0, POINTS)
    there = point < n
    pairs = vertices.to(tl.int64) * 2
    total = tl.zeros((POINTS,), dtype=out.dtype.element_ty)
    # Loops of the machine, not unrolled: 17 corners have 9,826 steps.
    for k in range(CORNERS):
        here = tl.load(weight + point * CORNERS + k, mask=there, other=0.0)
        start = tl.load(index + point * CORNERS + k, mask=there, other=vertices)
        reached = (1 + IDENTITY) * here
        members = tl.zeros((POINTS,), dtype=tl.int64)
        share = tl.full((), 1.0, dtype=out.dtype.element_ty)
        for s in range(1, CORNERS + 1):
            share = share * TAP
            last = (k + s - 1) % CORNERS
            word = tl.load(order + point * WORDS + last // 12, mask=there, other=0)
            members = members | (1 << ((word >> (last % 12 * 5)) & 31))
            to = (k + s) % CORNERS
            up = start
            down = tl.load(index + point * CORNERS + to, mask=there, other=vertices)
            for axis in range(CORNERS):
                moves = ((members >> axis) & 1) > 0
                link = neighbors + axis * pairs
                above = tl.load(link + up.to(tl.int64) * 2 + 1, mask=moves & (up < vertices), other=vertices)
                below = tl.load(link + down.to(tl.int64) * 2, mask=moves & (down < vertices), other=vertices)
                up = tl.where(moves, above, up)
                down = tl.where(moves, below, down)
            chains = (up < vertices).to(share.dtype) + (down < vertices).to(share.dtype)
            reached += share * chains * tl.load(weight + point * CORNERS + to, mask=there, other=0.0)
        total += here * reached
    tl.store(out + point, total, mask=there)


def diagonal(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    """As ``lattice_torch.diagonal``, without derivatives."""
    weight, index, order, neighbors = (t.detach().contiguous() for t in (weight, index, order, neighbors))
    out = weight.new_empty(weight.shape[0])
    corners, vertices = neighbors.shape[:2]
    if out.numel():
        diagonal_kernel[(triton.cdiv(len(out), POINTS),)](
            weight, index, order, neighbors, out, len(out), vertices, TAP=tap, IDENTITY=identity,
            WORDS=order.shape[-1], CORNERS=corners, POINTS=POINTS,
        )  # fmt: skip
    return out
