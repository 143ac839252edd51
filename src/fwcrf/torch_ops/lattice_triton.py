"""The lattice filter in Triton, for GPUs: splat, blur and slice, a kernel each.

It reads the tables of the other engines and has the same results up to float rounding. Points are added to
vertices atomically, in any order, so that two runs may differ in the last digits; ``lattice_device`` does not
call it if torch must be deterministic. A pass of the blur computes both orders of axes at once; the last pass
also computes their mean and adds the unblurred share.
"""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

POINTS = 32  # rows of a block
MOST_CHANNELS = 64  # columns of a block
# Arguments that change from pass to pass: Triton would compile another kernel for the value 1.
_PLAIN = ["images", "first_axis", "second_axis", "source_direction"]


@triton.jit
def splat_kernel(
    x,  # (images, n, channels)
    index,  # (n, CORNERS)
    weight,  # (n, CORNERS)
    values,  # (images, vertices + 1, channels), zeros
    n,
    vertices,
    channels,
    CORNERS: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """values += splat' x."""
    image = tl.program_id(1).to(tl.int64)
    point = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    there = point < n
    mask = there[:, None] & (channel < channels)[None, :]
    row = tl.load(x + (image * n + point)[:, None] * channels + channel[None, :], mask=mask, other=0.0)
    for corner in tl.static_range(CORNERS):
        vertex = tl.load(index + point * CORNERS + corner, mask=there, other=0)
        share = tl.load(weight + point * CORNERS + corner, mask=there, other=0.0)
        target = values + (image * (vertices + 1) + vertex)[:, None] * channels + channel[None, :]
        tl.atomic_add(target, share[:, None] * row, mask=mask, sem="relaxed")


@triton.jit(do_not_specialize=_PLAIN)
def blur_kernel(
    source,  # (1 or directions, images, vertices + 1, channels)
    target,  # (directions, images, vertices + 1, channels)
    neighbors,  # (CORNERS, vertices, 2)
    images,
    vertices,
    channels,
    first_axis,  # of direction 0
    second_axis,  # of direction 1
    source_direction,  # 0 if both directions read the same source
    TAP: tl.constexpr,  # constants, so that they have the precision of the values
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """One pass of each direction, along an axis of its own; the row behind the last vertex stays 0."""
    image = (tl.program_id(1) % images).to(tl.int64)
    direction = (tl.program_id(1) // images).to(tl.int64)
    vertex = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    there = vertex < vertices
    wide = (channel < channels)[None, :]
    axis = tl.where(direction == 0, first_axis, second_axis).to(tl.int64)
    link = neighbors + (axis * vertices + vertex) * 2
    down = tl.load(link, mask=there, other=vertices)
    up = tl.load(link + 1, mask=there, other=vertices)
    rows = vertices + 1
    start = source + (direction * source_direction * images + image) * rows * channels + channel[None, :]
    mask = there[:, None] & wide
    here = tl.load(start + vertex[:, None] * channels, mask=mask, other=0.0)
    below = tl.load(start + down[:, None] * channels, mask=mask, other=0.0)
    above = tl.load(start + up[:, None] * channels, mask=mask, other=0.0)
    end = target + (direction * images + image) * rows * channels + channel[None, :]
    inside = (vertex <= vertices)[:, None] & wide
    tl.store(end + vertex[:, None] * channels, here + TAP * (below + above), mask=inside)


@triton.jit(do_not_specialize=_PLAIN)
def finish_kernel(
    source,  # (directions, images, vertices + 1, channels)
    values,  # (images, vertices + 1, channels), before the blur
    target,  # (images, vertices + 1, channels)
    neighbors,  # (CORNERS, vertices, 2)
    images,
    vertices,
    channels,
    first_axis,
    second_axis,
    source_direction,  # as in ``blur_kernel``
    TAP: tl.constexpr,
    IDENTITY: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """The last pass of each direction, their mean, and the unblurred share."""
    image = tl.program_id(1).to(tl.int64)
    vertex = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    there = vertex < vertices
    mask = there[:, None] & (channel < channels)[None, :]
    rows = vertices + 1
    offset = image * rows * channels + channel[None, :]
    total = IDENTITY * tl.load(values + offset + vertex[:, None] * channels, mask=mask, other=0.0)
    for direction in tl.static_range(DIRECTIONS):
        axis = second_axis if direction == 1 else first_axis
        link = neighbors + (axis.to(tl.int64) * vertices + vertex) * 2
        down = tl.load(link, mask=there, other=vertices)
        up = tl.load(link + 1, mask=there, other=vertices)
        start = source + direction * source_direction * images.to(tl.int64) * rows * channels + offset
        here = tl.load(start + vertex[:, None] * channels, mask=mask, other=0.0)
        below = tl.load(start + down[:, None] * channels, mask=mask, other=0.0)
        above = tl.load(start + up[:, None] * channels, mask=mask, other=0.0)
        total += (here + TAP * (below + above)) / DIRECTIONS
    tl.store(target + offset + vertex[:, None] * channels, total, mask=mask)


@triton.jit
def slice_kernel(
    values,  # (images, vertices + 1, channels)
    index,  # (n, CORNERS)
    weight,  # (n, CORNERS)
    x,  # (images, n, channels)
    shift,  # (n), read if SHIFTED
    out,  # (images, n, channels)
    n,
    vertices,
    channels,
    SHIFTED: tl.constexpr,
    CORNERS: tl.constexpr,
    POINTS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """out = slice values + shift x."""
    image = tl.program_id(1).to(tl.int64)
    point = tl.program_id(0) * POINTS + tl.arange(0, POINTS)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    there = point < n
    mask = there[:, None] & (channel < channels)[None, :]
    place = (image * n + point)[:, None] * channels + channel[None, :]
    total = tl.zeros((POINTS, CHANNELS), dtype=out.dtype.element_ty)
    if SHIFTED:
        own = tl.load(shift + point, mask=there, other=0.0)
        total += own[:, None] * tl.load(x + place, mask=mask, other=0.0)
    for corner in tl.static_range(CORNERS):
        vertex = tl.load(index + point * CORNERS + corner, mask=there, other=0)
        share = tl.load(weight + point * CORNERS + corner, mask=there, other=0.0)
        start = values + (image * (vertices + 1) + vertex)[:, None] * channels + channel[None, :]
        total += share[:, None] * tl.load(start, mask=mask, other=0.0)
    tl.store(out + place, total, mask=mask)


def filter(
    x: Tensor,  # (images, n, channels)
    index: Tensor,  # (n, corners)
    splat_weight: Tensor,  # (n, corners)
    slice_weight: Tensor | None,
    neighbors: Tensor,  # (corners, vertices, 2)
    shift: Tensor | None,  # (n)
    tap: float,
    identity: float,
    order: int,
) -> Tensor:
    """As ``lattice_torch.filter``, without derivatives: the adjoint is this filter again."""
    x, index, splat_weight, neighbors = (t.detach().contiguous() for t in (x, index, splat_weight, neighbors))
    slice_weight = splat_weight if slice_weight is None else slice_weight.detach().contiguous()
    images, n, channels = x.shape
    corners, vertices = neighbors.shape[:2]
    out = torch.empty_like(x)
    if not x.numel():
        return out
    width = min(MOST_CHANNELS, triton.next_power_of_2(channels))
    blocks = {"POINTS": POINTS, "CHANNELS": width}
    columns = triton.cdiv(channels, width)
    over_points = (triton.cdiv(n, POINTS), images, columns)
    over_vertices = triton.cdiv(vertices + 1, POINTS)

    values = x.new_zeros(images, vertices + 1, channels)
    splat_kernel[over_points](
        x, index, splat_weight, values, n, vertices, channels, CORNERS=corners, **blocks
    )

    ascending, descending = list(range(corners)), list(range(corners))[::-1]
    first, second = {0: (ascending, descending), 1: (ascending, ascending), 2: (descending, descending)}[
        order
    ]
    directions = 2 if order == 0 else 1
    source, apart = values, 0
    buffers = [x.new_empty(directions, images, vertices + 1, channels) for _ in range(min(2, corners - 1))]
    for turn in range(corners - 1):
        target = buffers[turn % 2]
        blur_kernel[(over_vertices, images * directions, columns)](
            source, target, neighbors, images, vertices, channels, first[turn], second[turn], apart,
            TAP=tap, **blocks,
        )  # fmt: skip
        source, apart = target, 1
    mixed = torch.empty_like(values)  # its last row is not read
    finish_kernel[(over_vertices, images, columns)](
        source, values, mixed, neighbors, images, vertices, channels, first[-1], second[-1], apart,
        TAP=tap, IDENTITY=identity, DIRECTIONS=directions, **blocks,
    )  # fmt: skip
    slice_kernel[over_points](
        mixed, index, slice_weight, x, x if shift is None else shift.detach().contiguous(), out, n, vertices,
        channels, SHIFTED=shift is not None, CORNERS=corners, **blocks,
    )  # fmt: skip
    return out
