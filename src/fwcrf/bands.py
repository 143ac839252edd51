"""Kernels along one axis of a grid as products of banded matrices, as the native engine takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

# Rows of a band that share columns.
TOGETHER = 4


@dataclass(frozen=True)
class Band:
    """A banded matrix, so many rows at a time: they share the columns from first[j // together] on."""

    rows: int
    first: Tensor  # (groups,), int32
    weight: Tensor  # (groups, width, together)

    @property
    def given(self) -> tuple[Tensor, Tensor]:
        """As the native engine takes it."""
        return self.first, self.weight


@dataclass(frozen=True)
class Factors:
    """diag(left) K diag(right) = up middle down; without a middle, up down."""

    down: Band
    middle: Band | None
    up: Band


def band(matrix: Tensor, together: int = TOGETHER) -> Band:
    """A matrix whose entries other than zero lie close together in every row."""
    rows, columns = matrix.shape
    padded = torch.nn.functional.pad(matrix, (0, 0, 0, -rows % together)).view(-1, together, columns)
    there = (padded != 0).any(1)
    first = there.to(torch.uint8).argmax(-1)
    last = columns - 1 - there.flip(-1).to(torch.uint8).argmax(-1)
    width = int((last - first).max()) + 1
    first = first.clamp(max=columns - width)
    shared = (first[:, None] + torch.arange(width))[:, None].expand(-1, together, -1)
    return Band(rows, first.int(), padded.gather(-1, shared).mT.contiguous())


def factors(size: int, *axis: Tensor, together: int = TOGETHER, up_together: int = TOGETHER) -> Factors:
    """The factors of one axis, given its taps, and what its rows (left) and columns (right) are scaled by."""
    return _made(size, together, up_together, axis[0].dtype, *(t.detach().numpy().tobytes() for t in axis))


@lru_cache(maxsize=64)  # the next image has the same size more often than not
def _made(size: int, together: int, up_together: int, dtype: torch.dtype, *axis: bytes) -> Factors:
    taps, left, right = (torch.frombuffer(bytearray(values), dtype=dtype) for values in axis)
    sigma = _sigma(taps)
    spacing = int(sigma / 1.5 + 1e-3) if taps.dtype == torch.float32 and sigma < size else 1
    if spacing < 2:
        i = torch.arange(size)
        distance = (i[:, None] - i).abs()
        K = torch.where(distance < len(taps), taps[distance.clamp(max=len(taps) - 1)], 0)
        identity = band(torch.eye(size, dtype=dtype), up_together)
        return Factors(band(left[:, None] * K * right, together), None, identity)
    points = torch.arange(-3, size // spacing + 4) * spacing + (spacing - 1) / 2
    w = _window(torch.arange(size)[:, None] - points, spacing)
    used = (w != 0).any(0)
    w = w[:, used]
    apart = torch.arange(w.shape[1])
    apart = (apart[:, None] - apart).abs()
    g = _coarse(sigma, spacing)
    G = torch.where(apart < len(g), g[apart.clamp(max=len(g) - 1)], 0)
    down, up = (right[:, None].double() * w).mT, left[:, None].double() * w
    return Factors(
        band(down.to(dtype), together), band(G.to(dtype), together), band(up.to(dtype), up_together)
    )


def _window(distance: Tensor, spacing: int) -> Tensor:
    """What a pixel and a point of the coarse grid have to do with each other: six points for every pixel."""
    inside = 1 - (distance.double() / (3 * spacing)).square()
    return torch.where(inside > 0, (12 * (inside.clamp(min=0).sqrt() - 1)).exp(), 0)


def _coarse(sigma: float, spacing: int) -> Tensor:
    """The filter on the coarse grid that comes closest to a Gaussian between pixels: to 4e-5 of its peak."""
    reach = math.ceil(3.3 * sigma / spacing)
    points = torch.arange(-reach - math.ceil(6 * sigma / spacing), reach + math.ceil(6 * sigma / spacing) + 1)
    points = points.double() * spacing + (spacing - 1) / 2
    # Pixels of one period of the coarse grid, and all that they reach.
    i, j = torch.arange(spacing), torch.arange(-math.ceil(5 * sigma), math.ceil(5 * sigma) + spacing)
    near, far = (_window(pixels[:, None] - points, spacing) for pixels in (i, j))
    shifted = [
        near @ far.mT,
        *(near[:, r:] @ far[:, :-r].mT + near[:, :-r] @ far[:, r:].mT for r in range(1, reach + 1)),
    ]
    target = (-((i[:, None] - j).double() / sigma).square() / 2).exp()
    A = torch.stack([t.flatten() for t in shifted], -1)
    return torch.linalg.lstsq(A, target.flatten()[:, None]).solution[:, 0]


def _sigma(taps: Tensor) -> float:
    """The standard deviation whose Gaussian has these taps."""
    if len(taps) < 2 or float(taps[1]) == 0:
        return 0.0
    at = min(len(taps) - 1, 8)  # far enough from the centre for float32 to tell it from 1
    known = float(taps[at])
    return at / math.sqrt(-2 * math.log(known)) if 0 < known < 1 else math.inf
