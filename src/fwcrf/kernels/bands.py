"""Kernels along one axis of a grid as products of banded matrices, as the native engine takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Band:
    """A banded matrix: row j is weight[j], from column first[j] on; ``first`` does not decrease."""

    rows: int
    first: Tensor  # (rows,), int32
    weight: Tensor  # (rows, width)

    @cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """``first`` and ``weight`` as numpy arrays, which native code receives faster than tensors."""
        return self.first.numpy(), self.weight.numpy()


@dataclass(frozen=True)
class Factors:
    """diag(left) K diag(right) = up middle down; without a middle, up down."""

    down: Band
    middle: Band | None
    up: Band


def band(matrix: Tensor) -> Band:
    """The matrix in banded form; its nonzero entries should lie close together in every row."""
    rows, columns = matrix.shape
    there = matrix != 0
    first = there.to(torch.uint8).argmax(-1).cummax(0).values
    last = columns - 1 - there.flip(-1).to(torch.uint8).argmax(-1)
    width = int((last - first).max()) + 1
    first = first.clamp(max=columns - width)
    return Band(rows, first.int(), matrix.gather(-1, first[:, None] + torch.arange(width)).contiguous())


def factors(size: int, *axis: Tensor) -> Factors:
    """The factors of one axis, given its taps and the scales of its rows (left) and columns (right)."""
    return _made(size, axis[0].dtype, *(t.detach().numpy().tobytes() for t in axis))


@lru_cache(maxsize=64)  # the next image has the same size more often than not
def _made(size: int, dtype: torch.dtype, *axis: bytes) -> Factors:
    taps, left, right = (torch.frombuffer(bytearray(values), dtype=dtype) for values in axis)
    sigma = _sigma(taps)
    spacing = int(sigma / 1.5 + 1e-3) if taps.dtype == torch.float32 and sigma < size else 1
    if spacing < 2:
        i = torch.arange(size)
        distance = (i[:, None] - i).abs()
        K = torch.where(distance < len(taps), taps[distance.clamp(max=len(taps) - 1)], 0)
        identity = band(torch.eye(size, dtype=dtype))
        return Factors(band(left[:, None] * K * right), None, identity)
    w = _window(torch.arange(size)[:, None] - _points(-3, size // spacing + 5, spacing), spacing)
    used = (w != 0).any(0)
    w = w[:, used]
    apart = torch.arange(w.shape[1])
    apart = (apart[:, None] - apart).abs()
    g = _coarse(sigma, spacing)
    G = torch.where(apart < len(g), g[apart.clamp(max=len(g) - 1)], 0)
    down, up = (right[:, None].double() * w).mT, left[:, None].double() * w
    return Factors(band(down.to(dtype)), band(G.to(dtype)), band(up.to(dtype)))


# Weights between a pixel and the points of a coarse grid with a spacing of 2, at distances 0.5, 1.5, ... 4.5.
# Every pixel has five points; these weights are the best fit to a Gaussian with sigma = 3.
_NEAR = (1.0, 0.72089, 0.36115, 0.11403, 0.01727)


def _window(distance: Tensor, spacing: int) -> Tensor:
    """Weights between pixels and coarse points at a distance: six points per pixel, five for spacing 2."""
    if spacing == 2:
        near = torch.tensor([*_NEAR, 0.0], dtype=torch.float64)
        return near[distance.abs().long().clamp(max=len(_NEAR))]
    inside = 1 - (distance.double() / (3 * spacing)).square()
    return torch.where(inside > 0, (12 * (inside.clamp(min=0).sqrt() - 1)).exp(), 0)


def _points(begin: int, end: int, spacing: int) -> Tensor:
    """Coarse points, so placed that each group of ``spacing`` pixels has the same points in reach."""
    return torch.arange(begin, end).double() * spacing + (0.5 if spacing == 2 else -0.5)


def _coarse(sigma: float, spacing: int) -> Tensor:
    """Taps of the coarse filter, by least squares: up middle down is a Gaussian to 4e-5 of its peak."""
    reach = math.ceil(4 * sigma / spacing - 2 - 1e-6)
    far_away = reach + math.ceil(6 * sigma / spacing)
    points = _points(-far_away, far_away + 1, spacing)
    # Pixels i of one period of the coarse grid, and all pixels j within 5 sigma.
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
    """The standard deviation of the Gaussian with these taps."""
    if len(taps) < 2 or float(taps[1]) == 0:
        return 0.0
    at = min(len(taps) - 1, 8)  # far enough from the centre to differ from 1 in float32
    known = float(taps[at])
    return at / math.sqrt(-2 * math.log(known)) if 0 < known < 1 else math.inf
