"""The permutohedral lattice in plain torch operations, for any device.

It builds the same lattice as the native engine, vertex for vertex: the embedding does the same
double-precision operations in the same order, and vertices are numbered by first touch. Autograd
sees through it: its gradients are the reference in tests of the native engine.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

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
    scaled = features.double() * torch.tensor(scale, dtype=torch.float64, device=features.device)
    elevated: list[Tensor] = [scaled[..., 0]] * corners
    total = torch.zeros_like(scaled[..., 0])
    for j in range(d, 0, -1):
        c = scaled[..., j - 1]
        elevated[j] = total - j * c
        total = total + c
    elevated[0] = total
    e = torch.stack(elevated, -1)
    with torch.no_grad():
        quotient = torch.round(e * (1.0 / corners))
        residual = e - quotient * corners
        excess = quotient.sum(-1, keepdim=True).long()
        rank = torch.zeros_like(residual, dtype=torch.int64)
        for i in range(corners):
            for j in range(i + 1, corners):
                less = (residual[..., i] < residual[..., j]).long()
                rank[..., i] += less
                rank[..., j] += 1 - less
        rank += excess
        carry = (rank < 0).long() - (rank > d).long()
        rank += carry * corners
        quotient = quotient.long() + carry
    delta = (e - quotient.double() * corners) * (1.0 / corners)
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
    of_scaled = of_elevated.cumsum(-1)[..., :-1] - counts * of_elevated[..., 1:]
    return of_scaled * torch.tensor(scale, dtype=g.dtype, device=g.device)


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
        offset = torch.tensor([0, 0, *(v - 3 for v in low)], dtype=torch.int64, device=features.device)
        sizes = [batch, corners, *(hi - lo + 7 for lo, hi in zip(low, high, strict=True))]
        index, keys = _number(fields - offset, sizes)
        neighbors = _connect(keys, sizes, d)
    return index.view(batch, n, corners).int(), weight, pack_order(order), neighbors


def _pack(fields: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Columns of bounded integers, packed into few int64 columns."""
    words, word, room = [], torch.zeros_like(fields[:, 0]), 1
    for column, size in zip(fields.unbind(-1), sizes, strict=True):
        if room * size > 2**62:
            words.append(word)
            word, room = torch.zeros_like(word), 1
        word, room = word * size + column, room * size
    return [*words, word]


def _unique(words: Sequence[Tensor]) -> Tensor:
    """Consecutive numbers of the distinct rows of the words, for every row."""
    ids = torch.zeros_like(words[0])
    for word in words:
        _, dense = torch.unique(word, return_inverse=True)
        ids = torch.unique(ids * (int(dense.max()) + 1) + dense, return_inverse=True)[1]
    return ids


def _number(fields: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The number of every row, by first appearance, and the fields of each distinct row in this order."""
    ids = _unique(_pack(fields, sizes))
    count = int(ids.max()) + 1
    place = torch.arange(len(ids), device=ids.device)
    first = torch.full((count,), len(ids), device=ids.device, dtype=torch.int64)
    first = first.scatter_reduce(0, ids, place, "amin")
    order = torch.argsort(first)
    renumber = torch.empty_like(order)
    renumber[order] = torch.arange(count, device=ids.device)
    return renumber[ids], fields[first[order]]


def _connect(keys: Tensor, sizes: Sequence[int], d: int) -> Tensor:
    """The vertices one step down and one step up each axis; the number of vertices if absent."""
    count = len(keys)
    neighbors = torch.full((d + 1, count, 2), count, dtype=torch.int32, device=keys.device)
    here = torch.arange(count, device=keys.device)
    wraps = keys[:, 1] == 0
    for axis in range(d + 1):
        moved = keys.clone()
        moved[:, 1] = torch.where(wraps, d, keys[:, 1] - 1)
        moved[:, 2:] -= wraps.long().unsqueeze(-1)
        if axis < d:
            moved[:, 2 + axis] += 1
        both = _unique(_pack(torch.cat([keys, moved]), sizes))
        at = torch.full((int(both.max()) + 1,), count, dtype=torch.int64, device=keys.device)
        at[both[:count]] = here
        down = at[both[count:]]
        neighbors[axis, :, 0] = down.int()
        found = down < count
        neighbors[axis, down[found], 1] = here[found].int()
    return neighbors


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
    ended = torch.full((corners, 1, 2), vertices, dtype=neighbors.dtype, device=neighbors.device)
    table = torch.cat([neighbors, ended], 1)
    axes = unpack_order(order, corners)
    out = (1 + identity) * weight.square().sum(-1)
    for k in range(corners):
        for s in range(1, corners + 1):
            to = (k + s) % corners
            members = torch.stack([axes[:, (k + t) % corners] for t in range(s)], -1)
            up, down = index[:, k], index[:, to]
            for axis in range(corners):
                member = (members == axis).any(-1)
                up = torch.where(member, table[axis, up.long(), 1], up)
                down = torch.where(member, table[axis, down.long(), 0], down)
            open_ = (up < vertices).to(weight.dtype) + (down < vertices).to(weight.dtype)
            out = out + tap**s * open_ * weight[:, k] * weight[:, to]
    return out
