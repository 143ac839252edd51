"""The permutohedral lattice in plain torch operations, for any device.

It builds the same lattice as the native engine, vertex for vertex: the embedding does the same
double-precision operations in the same order, and vertices are numbered by first touch. A device without
double precision computes in single, so that points at the border of a simplex may be put into the next one.
Autograd sees through it: its gradients are the reference in tests of the native engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from fwcrf.torch_ops.precision import running_sums, wide

_ORDER_BITS, _PER_WORD = 5, 12


def pack_order(axes: Tensor) -> Tensor:
    """Axes in the order from corner to corner, ``(..., corners)``, packed as in the native engine."""
    shifts = torch.arange(axes.shape[-1], device=axes.device)
    shifted = axes << (shifts % _PER_WORD * _ORDER_BITS)
    return torch.stack([part.sum(-1) for part in shifted.split(_PER_WORD, -1)], -1)


def unpack_order(order: Tensor, corners: int) -> Tensor:
    place = torch.arange(corners, device=order.device)
    return (order[..., place // _PER_WORD] >> (place % _PER_WORD * _ORDER_BITS)) & 31


def embed(features: Tensor, scale: Sequence[float]) -> tuple[Tensor, Tensor, Tensor]:
    """The simplex around each point: quotients and order of axes (int64), barycentric weights."""
    d = features.shape[-1]
    corners = d + 1
    given = wide(features)
    elevated: list[Tensor] = [given[..., 0]] * corners
    total = torch.zeros_like(given[..., 0])
    for j in range(d, 0, -1):
        c = given[..., j - 1] * scale[j - 1]
        elevated[j] = total - j * c
        total = total + c
    elevated[0] = total
    e = torch.stack(elevated, -1)
    with torch.no_grad():
        quotient = torch.round(e * (1.0 / corners))
        residual = e - quotient * corners
        # The rank is the number of larger residuals; of equal ones the first comes last.
        less = residual.unsqueeze(-1) < residual.unsqueeze(-2)
        later = torch.ones(corners, corners, dtype=torch.bool, device=e.device).triu(1)
        above = torch.where(later, less, less.mT.logical_not())
        rank = above.sum(-1) + (quotient.sum(-1, keepdim=True).long() - 1)  # every residual but itself
        carry = (rank < 0).long() - (rank > d).long()
        rank += carry * corners
        quotient = quotient.long() + carry
    delta = (e - quotient.to(e.dtype) * corners) * (1.0 / corners)
    sorted_delta = torch.zeros_like(delta).scatter(-1, rank, delta)
    axis_of_rank = torch.argsort(rank, -1)
    flipped = sorted_delta.flip(-1)  # the smallest first
    first = (flipped[..., :1] - flipped[..., -1:]) + 1.0
    weight = torch.cat([first, flipped[..., 1:] - flipped[..., :-1]], -1)
    return quotient, axis_of_rank.flip(-1), weight.to(features.dtype)


def embedding_adjoint(g: Tensor, order: Tensor, scale: Sequence[float]) -> Tensor:
    """The gradient in the features, from the gradient in the barycentric weights of ``embed``."""
    corners = g.shape[-1]
    # Weight m is the difference of the sorted coordinates m and m - 1, over the number of corners.
    of_sorted = (g - g.roll(-1, -1)) / corners
    of_elevated = torch.zeros_like(g).scatter(-1, unpack_order(order, corners), of_sorted)
    counts = torch.arange(1, corners, dtype=g.dtype, device=g.device)
    of_scaled = running_sums(of_elevated)[..., :-1] - counts * of_elevated[..., 1:]
    columns = [column * factor for column, factor in zip(of_scaled.unbind(-1), scale, strict=True)]
    return torch.stack(columns, -1)


def build(
    features: Tensor,  # (batch, n, d)
    scale: Sequence[float],
    low: Sequence[int],
    high: Sequence[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``index`` and ``weight`` (batch, n, d + 1), packed ``order``, and ``neighbors``."""
    batch, n, d = features.shape
    corners = d + 1
    quotient, order, weight = embed(features, scale)
    with torch.no_grad():
        # Corner m has remainder m, and its quotients fall by one along the first m axes of the order.
        step = torch.nn.functional.one_hot(order[..., :d], corners).cumsum(-2)
        base = quotient.unsqueeze(-2)
        vertex = torch.cat([base, base - step], -2)[..., :d]  # (batch, n, corners, d)
        image = torch.arange(batch, device=features.device).view(-1, 1, 1, 1)
        remainder = torch.arange(corners, device=features.device).view(1, 1, -1, 1)
        fields = torch.cat(
            [image.expand(batch, n, corners, 1), remainder.expand(batch, n, corners, 1), vertex], -1
        ).view(-1, d + 2)
        # Three more on both sides, for steps away from a vertex.
        ranges = [
            (0, batch),
            (0, corners),
            *((lo - 3, hi - lo + 7) for lo, hi in zip(low, high, strict=True)),
        ]
        index, keys = _number(fields, ranges)
        neighbors = _connect(keys, ranges, d)
    return index.view(batch, n, corners).int(), weight, pack_order(order), neighbors


def _pack(fields: Tensor, ranges: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Columns of integers with a least value and a number of values each, packed into few int64 columns."""
    words, word, room = [], torch.zeros_like(fields[:, 0]), 1
    for column, (least, size) in zip(fields.unbind(-1), ranges, strict=True):
        if room * size > 2**62:
            words.append(word)
            word, room = torch.zeros_like(word), 1
        word, room = word * size + (column - least), room * size
    return [*words, word]


def _first_equal(words: Sequence[Tensor]) -> Tensor:
    """For every row of the words, the place of the first row that is equal to it."""
    order = words[-1].sort(stable=True).indices
    for word in reversed(words[:-1]):
        order = order[word[order].sort(stable=True).indices]
    differs = torch.zeros_like(order)
    for word in words:
        arranged = word[order]
        differs[1:] |= (arranged[1:] != arranged[:-1]).long()
    group = differs.cumsum(0)
    start = torch.searchsorted(group, group)
    first = torch.empty_like(order)
    first[order] = order[start]
    return first


def _number(fields: Tensor, ranges: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """The number of every row, by first appearance, and the fields of each distinct row in this order."""
    first = _first_equal(_pack(fields, ranges))
    count = (first == torch.arange(len(first), device=first.device)).cumsum(0)
    vertices = int(count[-1])  # the host waits for the device here, and nowhere else in the build
    places = torch.searchsorted(count, torch.arange(1, vertices + 1, device=count.device))
    return count[first] - 1, fields[places]


def _connect(keys: Tensor, ranges: Sequence[tuple[int, int]], d: int) -> Tensor:
    """The vertices one step down and one step up each axis; the number of vertices if absent."""
    count, corners = len(keys), d + 1
    here = torch.arange(count, device=keys.device)
    # Down an axis, the remainder falls by one, or wraps around and all quotients fall; the axis's own rises.
    wraps = keys[:, 1] == 0
    remainder = torch.where(wraps, d, keys[:, 1] - 1)
    quotients = keys[:, 2:] - wraps.long().unsqueeze(-1)
    below = quotients + torch.eye(corners, d, dtype=torch.int64, device=keys.device).unsqueeze(1)
    moved = torch.cat([keys[:, :1], remainder.unsqueeze(-1)], -1).expand(corners, -1, -1)
    moved = torch.cat([moved, below], -1).flatten(0, 1)
    first = _first_equal(_pack(torch.cat([keys, moved]), ranges))[count:]
    down = torch.where(first < count, first, count).view(corners, count)
    up = torch.full((corners, count + 1), count, dtype=torch.int64, device=keys.device)
    at = down + torch.arange(corners, device=keys.device).unsqueeze(-1) * (count + 1)
    up.view(-1)[at.flatten()] = here.repeat(corners)  # the last of each axis is for absent neighbours
    return torch.stack([down, up[:, :-1]], -1).int()


def splat(x: Tensor, index: Tensor, weight: Tensor, vertices: int) -> Tensor:
    """Values at the vertices, with a last row of zeros: (images, vertices + 1, channels)."""
    values = x.new_zeros(x.shape[0], vertices + 1, x.shape[-1])
    for c in range(index.shape[-1]):
        values = values.index_add(1, index[:, c], weight[:, c, None] * x)
    return values


def blur(values: Tensor, neighbors: Tensor, tap: float, axes: Sequence[int]) -> Tensor:
    for axis in axes:
        down, up = neighbors[axis].unbind(-1)
        moved = values.index_select(1, down) + values.index_select(1, up)
        values = torch.cat([values[:, :-1] + tap * moved, values[:, -1:]], 1)
    return values


def mix(values: Tensor, neighbors: Tensor, tap: float, identity: float, order: int) -> Tensor:
    """(blur + identity I) values, the blur in the given order of axes, 0 for the mean of both."""
    ascending = range(neighbors.shape[0])
    descending = ascending[::-1]
    if order == 0:
        blurred = (blur(values, neighbors, tap, ascending) + blur(values, neighbors, tap, descending)) / 2
    else:
        blurred = blur(values, neighbors, tap, ascending if order == 1 else descending)
    return blurred + identity * values


def slice(values: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    if not _watched(values, weight):
        # One operation that reads the corners and writes the sum; its second derivative does not exist.
        bags = [embedding_bag(index, image, per_sample_weights=weight, mode="sum") for image in values]
        return torch.stack(bags) if bags else values.new_empty(0, len(index), values.shape[-1])
    out = weight[:, 0, None] * values.index_select(1, index[:, 0])
    for c in range(1, index.shape[-1]):
        out = out + weight[:, c, None] * values.index_select(1, index[:, c])
    return out


def _watched(*tensors: Tensor) -> bool:
    """True if autograd, torch.func or the compiler may differentiate operations on the tensors."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return True
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


def filter(
    x: Tensor,
    index: Tensor,
    splat_weight: Tensor,
    slice_weight: Tensor | None,
    neighbors: Tensor,
    shift: Tensor | None,
    tap: float,
    identity: float,
    order: int,
) -> Tensor:
    values = splat(x, index, splat_weight, neighbors.shape[1])
    out = slice(
        mix(values, neighbors, tap, identity, order),
        index,
        splat_weight if slice_weight is None else slice_weight,
    )
    return out if shift is None else out + shift[:, None] * x


def diagonal(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    """The diagonal of slice (blur + identity I) slice': see ``csrc/lattice/build.hpp``."""
    corners, vertices = neighbors.shape[:2]
    # Places in a table of both ways: 2 v for the chain down that has come to v, 2 v + 1 for the chain up.
    ways = torch.arange(2, device=index.device)
    ended = torch.full((corners, 1, 2), vertices, dtype=neighbors.dtype, device=neighbors.device)
    table = (torch.cat([neighbors, ended], 1).long() * 2 + ways).flatten(1)
    start = index.long() * 2
    axis_bits = 1 << unpack_order(order, corners)
    members = torch.zeros_like(axis_bits)
    reached = (1 + identity) * weight
    for s in range(1, corners + 1):
        # s steps up the axes after a corner lead to corner + s; s steps down lead back.
        members = members | axis_bits.roll(1 - s, -1)
        chains = torch.stack([start.roll(-s, -1), start + 1], -1)
        for axis in range(corners):
            moves = (members & (1 << axis)).bool().unsqueeze(-1)
            chains = torch.where(moves, table[axis][chains], chains)
        open_ = (chains < 2 * vertices).sum(-1).to(weight.dtype)
        reached = reached + tap**s * open_ * weight.roll(-s, -1)
    return (weight * reached).sum(-1)
