"""Kernels along one axis of a grid as products of two banded matrices, as the native engine takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True)
class Band:
    """A banded matrix, four rows at a time: they share the columns from first[j // 4] on."""

    rows: int
    first: Tensor  # (groups,), int32
    weight: Tensor  # (groups, width, 4)


def band(matrix: Tensor) -> Band:
    """A matrix whose entries other than zero lie close together in every row."""
    rows, columns = matrix.shape
    padded = torch.nn.functional.pad(matrix, (0, 0, 0, -rows % 4)).view(-1, 4, columns)
    there = (padded != 0).any(1)
    first = there.to(torch.uint8).argmax(-1)
    last = columns - 1 - there.flip(-1).to(torch.uint8).argmax(-1)
    width = int((last - first).max()) + 1
    first = first.clamp(max=columns - width)
    shared = (first[:, None] + torch.arange(width))[:, None].expand(-1, 4, -1)
    return Band(rows, first.int(), padded.gather(-1, shared).mT.contiguous())


def factors(size: int, *axis: Tensor) -> tuple[Band, Band]:
    """Bands ``down`` and ``up`` of the matrix of one axis: diag(left) K diag(right) = up down."""
    return _made(size, axis[0].dtype, *(t.detach().numpy().tobytes() for t in axis))


@lru_cache(maxsize=64)  # the next image has the same size more often than not
def _made(size: int, dtype: torch.dtype, *axis: bytes) -> tuple[Band, Band]:
    taps, left, right = (torch.frombuffer(bytearray(values), dtype=dtype) for values in axis)
    sigma = _sigma(taps)
    spacing = int(sigma / 1.5 + 1e-3) if taps.dtype == torch.float32 and sigma < size else 1
    if spacing < 2:
        i = torch.arange(size)
        distance = (i[:, None] - i).abs()
        K = torch.where(distance < len(taps), taps[distance.clamp(max=len(taps) - 1)], 0)
        return band(left[:, None] * K * right), band(torch.eye(size, dtype=taps.dtype))
    # exp(-(i - j)^2 / (2 s^2)) is the sum over c of h(i - c) h(j - c), h of width s / sqrt(2), for c on a
    # grid of this spacing, to 2 exp(-(pi s / spacing)^2 / 2): 3e-5 at a spacing of s / 1.5.
    reach = math.ceil(4.8 * sigma / math.sqrt(2) / spacing) * spacing
    c = torch.arange(-reach + reach % spacing, size + reach, spacing)
    distance = torch.arange(size)[:, None].double() - c
    h = torch.where(distance.abs() <= 4.8 * sigma / math.sqrt(2), (-(distance / sigma).square()).exp(), 0)
    h = h[:, (h != 0).any(0)] * math.sqrt(spacing * math.sqrt(2 / math.pi) / sigma)
    down, up = (right[:, None].double() * h).mT, left[:, None].double() * h
    return band(down.to(taps.dtype)), band(up.to(taps.dtype))


def _sigma(taps: Tensor) -> float:
    """The standard deviation whose Gaussian has these taps."""
    if len(taps) < 2 or float(taps[1]) == 0:
        return 0.0
    at = min(len(taps) - 1, 8)  # far enough from the centre for float32 to tell it from 1
    known = float(taps[at])
    return at / math.sqrt(-2 * math.log(known)) if 0 < known < 1 else math.inf
