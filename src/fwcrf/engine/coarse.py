"""Derivatives in a separable kernel, from sums over the coarse grid on which the engine applies it.

Along an axis the kernel is a matrix A = D' M D, with D the way to the coarse grid and M a band over it. A
change of A by a bandwidth is D' C D with another C, up to 4e-4 of its norm. The derivative in C is the sum of
products of two arrays on the coarse grid, one of which is filtered along the other axes. That grid has a
fourth of the pixels or fewer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels.bands import Band, Factors, dual
from fwcrf.torch_ops.native import empty, threads_for

_LANES = _core.ModelF32.lanes()
_NARROW = _core.ModelF32.row(1)  # lanes of the vectors for short rows
_MOST = 4 * _LANES  # labels at the same time
# Entries of C farther than this from its diagonal are left out: dA changes by less than 1e-3 of its norm.
_REACH = 40


class CoarseSums:
    """The sum over steps of the derivatives of <g, K x M> in the matrix of each axis, float32 on the CPU."""

    def __init__(self, shape: Sequence[int], axes: Sequence[Factors], matrix: Tensor | None = None) -> None:
        """Of a grid of this shape, with factors that have a coarse grid along every axis; M is ``matrix``."""
        self.matrix = matrix
        self.shape: tuple[int, ...] = tuple(shape)
        self.axes: tuple[Factors, ...] = tuple(axes)
        self.sums: list[Tensor] = [
            torch.zeros(len(f.down.first), len(f.down.first), dtype=torch.float32, device="cpu") for f in axes
        ]

    def add(self, x: Tensor, g: Tensor) -> None:
        few = x.shape[-1] <= _MOST
        if self.matrix is not None and not few:
            g = g @ self.matrix
        for some, others in zip(x.split(_MOST, -1), g.split(_MOST, -1), strict=True):
            coarse_x, coarse_g = self._shrunk(some), self._shrunk(others)
            self._add(coarse_x, self._multiplied(coarse_g) if few else coarse_g, some.shape[-1])

    def add_spread(self, x: Tensor, g: Tensor, labels: int, cell: int) -> None:
        """The same from coarse x and g of an image, as the engine keeps them; ``cell`` values per point."""
        x, g = self._points(x, cell), self._multiplied(self._points(g, cell))
        for some, others in zip(x.split(_MOST, -1), g.split(_MOST, -1), strict=True):
            self._add(some.contiguous(), others.contiguous(), min(labels, _MOST))
            labels -= _MOST

    def found(self, taps: Sequence[Tensor]) -> list[Tensor]:
        """The derivative in the matrix ``(size, size)`` of each axis without its scales, for such changes.

        ``taps`` are the ones of each axis.
        """
        duals = [dual(size, t) for size, t in zip(self.shape, taps, strict=True)]
        return [d.mT @ (total @ d) for total, d in zip(self.sums, duals, strict=True)]

    def _shrunk(self, t: Tensor) -> Tensor:
        """The values ``(images, *coarse, cell)``: labels in whole vectors."""
        labels, images = t.shape[-1], math.prod(t.shape[:-2])
        *outer, last = self.shape
        cell = -(-labels // _LANES) * _LANES
        y = _lines(t.contiguous().view(-1, last, labels), self.axes[-1].down, cell)
        for axis in reversed(range(len(outer))):
            lines = images * math.prod(outer[:axis])
            y = _along(y.view(lines, outer[axis], -1), self.axes[axis].down)
        return y.view(images, *(len(f.down.first) for f in self.axes), cell)

    def _points(self, coarse: Tensor, cell: int) -> Tensor:
        """``(1, *coarse, cell)``, without the padding of the engine's lines."""
        sizes = [len(f.down.first) for f in self.axes]
        last = sizes[-1] if len(sizes) > 1 else 1  # lines of a single axis have one point
        lines = coarse.view(math.prod(sizes) // last, -1)
        return lines[:, : last * cell].reshape(1, *sizes, cell)

    def _multiplied(self, g: Tensor) -> Tensor:
        """g M for whole vectors of labels."""
        if self.matrix is None:
            return g
        spare = g.shape[-1] - self.matrix.shape[-1]
        padded = torch.nn.functional.pad(self.matrix, (0, spare, 0, spare))
        return torch.matmul(g, padded, out=empty(g.shape, g.dtype))

    def _add(self, x: Tensor, g: Tensor, labels: int) -> None:
        for axis, total in enumerate(self.sums):
            y = x
            for other, factors in enumerate(self.axes):
                if other != axis and factors.middle is not None:
                    y = _filtered(y, other, factors.middle)
            shape = -1, len(total), math.prod(x.shape[axis + 2 : -1]), x.shape[-1]
            threads = threads_for(2 * _REACH * x.numel())
            _core.band_products(g.view(shape), y.view(shape), labels, _REACH, total, threads)


def _filtered(x: Tensor, axis: int, middle: Band) -> Tensor:
    """A band along an axis of ``(images, *coarse, cell)``."""
    size, cell = x.shape[axis + 1], x.shape[-1]
    if axis == x.dim() - 3:
        return _lines(x.view(-1, size, cell), middle, cell).view(x.shape)
    return _along(x.view(-1, size, math.prod(x.shape[axis + 2 :])), middle).view(x.shape)


def _lines(x: Tensor, band: Band, cell: int) -> Tensor:
    """A band along the last axis of a grid, ``(lines, size, labels)``, into cells of whole vectors."""
    out = empty((len(x), len(band.first), cell), x.dtype)
    _core.shrink_lines(x, band, out, threads_for(out.numel() * band.weight.shape[1]))
    return out


def _along(x: Tensor, band: Band) -> Tensor:
    """A band along any axis, ``(outer, size, inner)``."""
    inner = x.shape[-1]
    if spare := -inner % (2 * _NARROW):
        x = torch.nn.functional.pad(x, (0, spare))
    out = empty((len(x), len(band.first), x.shape[-1]), x.dtype)
    _core.shrink_axis(x, band, out, threads_for(out.numel() * band.weight.shape[1]))
    return out[..., :inner].contiguous()
