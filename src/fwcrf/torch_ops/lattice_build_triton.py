"""The permutohedral lattice built in Triton, by a hash table: the same lattice as by the other engines.

1. ``embed``: the simplex around each point, and the slot of each of its corners in a hash table, which
   keeps the first place where a vertex occurs.
2. ``mark``: the places where a vertex occurs first. Their running count numbers the vertices, by first touch.
3. ``number``: numbers in place of slots, and the key of each vertex.
4. ``connect``: the neighbours of each vertex, looked up in the table.

Threads race for slots, and the result does not depend on who wins. The arithmetic is double precision in the
order of the native engine, without fused multiplication and addition.
"""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from fwcrf import _core

# Entries of a block of (points, corners, corners).
BLOCK = 2048
PLACES = 1024
# Adding and subtracting 1.5 * 2^52 rounds half to even.
MAGIC = tl.constexpr(6755399441055744.0)
# An odd number with mixed bits, for the hash.
MIX = tl.constexpr(-7046029254386353131)
# Bits of a key that fit beside its sign.
_BITS = 62


def strides(batch: int, corners: int, low: Sequence[int], high: Sequence[int]) -> list[int] | None:
    """Factors of image, remainder and quotients in a key; None if the keys need more than 62 bits.

    Quotients are relative to three below their bound, so that one step from any vertex leaves no field.
    """
    found, room = [], 1
    for size in reversed([batch, corners, *(hi - lo + 7 for lo, hi in zip(low, high, strict=True))]):
        found.append(room)
        room *= size
    return found[::-1] if room <= 2**_BITS else None


@triton.jit
def slot_of(key, table_mask):
    """The slot at which the search for a key begins."""
    mixed = key * MIX
    return (mixed ^ (mixed >> 29)) & table_mask


@triton.jit
def embed_kernel(
    features,  # (batch * n, d)
    fields,  # (2, d): factors and offsets of the quotients in a key
    index,  # (batch * n, CORNERS)
    weight,  # (batch * n, CORNERS)
    order,  # (batch * n, WORDS)
    table,  # (slots + 1): keys, or -1; the last one is for corners that do not exist
    first,  # (slots): the first place of each key
    points,
    n,
    table_mask,
    image_factor,
    remainder_factor,
    SCALE: tl.constexpr,
    WORDS: tl.constexpr,
    CORNERS: tl.constexpr,
    WIDE: tl.constexpr,  # a power of 2 >= CORNERS
    POINTS: tl.constexpr,
):
    """The simplex around each point, and the slots of its corners."""
    image_factor, remainder_factor = image_factor.to(tl.int64), remainder_factor.to(tl.int64)
    point = tl.program_id(0).to(tl.int64) * POINTS + tl.arange(0, POINTS)
    there = point < points
    column = tl.arange(0, WIDE)
    real = (column < CORNERS)[None, :]
    d = CORNERS - 1
    elevated = tl.zeros((POINTS, WIDE), dtype=tl.float64)
    total = tl.zeros((POINTS,), dtype=tl.float64)
    for back in tl.static_range(CORNERS - 1):
        # Coordinate j is the sum of all later features less j times the one before it.
        value = tl.load(features + point * (CORNERS - 1) + (CORNERS - 2 - back), mask=there, other=0.0)
        c = value.to(tl.float64) * tl.full((), SCALE[CORNERS - 2 - back], dtype=tl.float64)
        own = (total - c * (CORNERS - 1 - back))[:, None]
        elevated = tl.where((column == CORNERS - 1 - back)[None, :], own, elevated)
        total = total + c
    elevated = tl.where((column == 0)[None, :], total[:, None], elevated)
    inverse = tl.full((), 1.0 / CORNERS, dtype=tl.float64)
    quotient = (elevated * inverse + MAGIC) - MAGIC
    residual = elevated - quotient * CORNERS
    # Ranks: the number of larger residuals, of equal ones the first comes last.
    mine, other = residual[:, :, None], residual[:, None, :]
    before = (column[:, None] < column[None, :])[None, :, :]
    after = (column[:, None] > column[None, :])[None, :, :] & (column < CORNERS)[None, :, None]
    above = (before & (column < CORNERS)[None, None, :] & (mine < other)) | (after & ~(other < mine))
    excess = tl.sum(tl.where(real, quotient, 0.0), 1).to(tl.int64)
    rank = tl.sum(above.to(tl.int64), 2) + excess[:, None]
    carry = (rank < 0).to(tl.int64) - (rank > d).to(tl.int64)
    rank = rank + carry * CORNERS
    quotient = quotient + carry.to(tl.float64)
    delta = (elevated - quotient * CORNERS) * inverse
    place = tl.where(real, d - rank, WIDE + column[None, :])

    # Weight m is the difference of the deltas at places m and m - 1; weight 0 takes the rest.
    to = column[None, :, None]
    previous = tl.where(to == 0, d, to - 1)
    at = tl.sum(tl.where(place[:, None, :] == to, delta[:, None, :], 0.0), 2)
    behind = tl.sum(tl.where(place[:, None, :] == previous, delta[:, None, :], 0.0), 2)
    share = (at - behind) + tl.where((column == 0)[None, :], 1.0, 0.0).to(tl.float64)
    mask = there[:, None] & real
    corner = point[:, None] * CORNERS + column[None, :]
    tl.store(weight + corner, share.to(weight.dtype.element_ty), mask=mask)
    for word in tl.static_range(WORDS):
        digit = place - word * 12
        digits = tl.where(real & (digit >= 0) & (digit < 12), column[None, :].to(tl.int64) << (digit * 5), 0)
        tl.store(order + point * WORDS + word, tl.sum(digits, 1), mask=there)

    # The first m axes of the order have fallen by one at corner m.
    used = column < CORNERS - 1
    factor = tl.load(fields + column, mask=used, other=0)
    offset = tl.load(fields + (CORNERS - 1) + column, mask=used, other=0)
    steps = tl.where(used[None, :], (quotient.to(tl.int64) - offset[None, :]) * factor[None, :], 0)
    fallen = tl.sum(tl.where(place[:, None, :] < to, factor[None, None, :], 0), 2)
    key = (point // n * image_factor + tl.sum(steps, 1))[:, None] - fallen
    key = key + column[None, :] * remainder_factor

    # -1, an empty slot, is no key. Corners that do not exist meet in a slot of their own.
    key = tl.where(mask, key, -2)
    slot = tl.where(mask, slot_of(key, table_mask), table_mask + 1)
    open_ = mask
    while tl.max(tl.max(open_.to(tl.int32), 1), 0) > 0:
        found = tl.atomic_cas(table + slot, tl.full((POINTS, WIDE), -1, dtype=tl.int64), key, sem="relaxed")
        open_ = open_ & (found != -1) & (found != key)
        slot = tl.where(open_, (slot + 1) & table_mask, slot)
    tl.atomic_min(first + slot, corner.to(tl.int32), mask=mask, sem="relaxed")
    tl.store(index + corner, slot.to(tl.int32), mask=mask)


@triton.jit
def mark_kernel(slot, first, is_first, places, PLACES: tl.constexpr):
    """1 for the first place of a vertex, else 0."""
    place = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    mask = place < places
    origin = tl.load(first + tl.load(slot + place, mask=mask, other=0), mask=mask, other=-1)
    tl.store(is_first + place, (origin == place).to(tl.int32), mask=mask)


@triton.jit
def number_kernel(index, first, count, table, keys, places, PLACES: tl.constexpr):
    """The number of its vertex in place of the slot, and the key of each vertex."""
    place = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    mask = place < places
    slot = tl.load(index + place, mask=mask, other=0)
    origin = tl.load(first + slot, mask=mask, other=0)
    vertex = tl.load(count + origin, mask=mask, other=1) - 1
    tl.store(index + place, vertex, mask=mask)
    tl.store(keys + vertex, tl.load(table + slot, mask=mask, other=0), mask=mask & (origin == place))


@triton.jit
def found_in(key, mask, table, first, count, table_mask, vertices):
    """The number of the vertex with a key; the number of vertices if there is none."""
    slot = slot_of(key, table_mask)
    vertex = tl.zeros_like(key) + vertices
    open_ = mask
    while tl.max(open_.to(tl.int32), 0) > 0:
        seen = tl.load(table + slot, mask=open_, other=-1)
        hit = open_ & (seen == key)
        origin = tl.load(first + slot, mask=hit, other=0)
        number = tl.load(count + origin, mask=hit, other=0)
        vertex = tl.where(hit, number.to(tl.int64) - 1, vertex)
        open_ = open_ & (seen != -1) & (seen != key)
        slot = (slot + 1) & table_mask
    return vertex


@triton.jit
def connect_kernel(
    keys,  # (vertices)
    fields,  # (2, d)
    table,
    first,
    count,
    neighbors,  # (CORNERS, vertices, 2)
    vertices,
    table_mask,
    remainder_factor,
    CORNERS: tl.constexpr,
    WIDE: tl.constexpr,
    PLACES: tl.constexpr,
):
    """The neighbours one step down and one step up an axis."""
    remainder_factor = remainder_factor.to(tl.int64)
    axis = tl.program_id(1)
    vertex = tl.program_id(0).to(tl.int64) * PLACES + tl.arange(0, PLACES)
    mask = vertex < vertices
    column = tl.arange(0, WIDE)
    factors = tl.load(fields + column, mask=column < CORNERS - 1, other=0)
    all_quotients = tl.sum(factors, 0)
    own = tl.sum(
        tl.where(column == axis, factors, 0), 0
    )  # 0 for the last axis, which has no quotient in the key
    key = tl.load(keys + vertex, mask=mask, other=0)
    remainder = key // remainder_factor % CORNERS
    # A step down takes one from the remainder, or wraps it around and takes one from all quotients.
    down = tl.where(remainder == 0, (CORNERS - 1) * remainder_factor - all_quotients, -remainder_factor) + own
    up = tl.where(
        remainder == CORNERS - 1, all_quotients - (CORNERS - 1) * remainder_factor, remainder_factor
    )
    below = found_in(key + down, mask, table, first, count, table_mask, vertices)
    above = found_in(key + up - own, mask, table, first, count, table_mask, vertices)
    link = neighbors + (axis.to(tl.int64) * vertices + vertex) * 2
    tl.store(link, below.to(tl.int32), mask=mask)
    tl.store(link + 1, above.to(tl.int32), mask=mask)


def build(
    features: Tensor, scale: Sequence[float], low: Sequence[int], high: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """As ``lattice_torch.build``, without derivatives; None if keys or places are too large."""
    features = features.detach().contiguous()
    batch, n, d = features.shape
    corners, places = d + 1, batch * n * (d + 1)
    factors = strides(batch, corners, low, high)
    slots = triton.next_power_of_2(2 * places)
    if factors is None or slots > 2**30:
        return None
    wide = triton.next_power_of_2(corners)
    device = features.device
    given = torch.tensor([factors[2:], [v - 3 for v in low]], dtype=torch.int64, device="cpu")
    fields = given.to(device, non_blocking=True)
    index = torch.empty((batch, n, corners), dtype=torch.int32, device=device)
    weight = features.new_empty(index.shape)
    order = torch.empty((batch, n, _core.order_words(corners)), dtype=torch.int64, device=device)
    table = torch.full((slots + 1,), -1, dtype=torch.int64, device=device)
    first = torch.full((slots,), 2**31 - 1, dtype=torch.int32, device=device)
    points = max(1, BLOCK // wide**2)
    embed_kernel[(triton.cdiv(batch * n, points),)](
        features, fields, index, weight, order, table, first, batch * n, n, slots - 1, factors[0], factors[1],
        SCALE=tuple(scale), WORDS=order.shape[-1], CORNERS=corners, WIDE=wide, POINTS=points,
        enable_fp_fusion=False,
    )  # fmt: skip
    over_places = (triton.cdiv(places, PLACES),)
    is_first = torch.empty(places, dtype=torch.int32, device=device)
    mark_kernel[over_places](index, first, is_first, places, PLACES=PLACES)
    count = is_first.cumsum(0, dtype=torch.int32)
    vertices = int(count[-1])
    keys = torch.empty(vertices, dtype=torch.int64, device=device)
    number_kernel[over_places](index, first, count, table, keys, places, PLACES=PLACES)
    neighbors = torch.empty((corners, vertices, 2), dtype=torch.int32, device=device)
    connect_kernel[(triton.cdiv(vertices, PLACES), corners)](
        keys, fields, table, first, count, neighbors, vertices, slots - 1, factors[1],
        CORNERS=corners, WIDE=wide, PLACES=PLACES,
    )  # fmt: skip
    return index, weight, order, neighbors
