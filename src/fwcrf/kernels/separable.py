"""The Gaussian over pixel positions of a regular grid, one axis at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from fwcrf.features import bandwidths
from fwcrf.kernels.bands import Factors, factors, too_wide
from fwcrf.kernels.operator import Normalization, Operator, check_normalization
from fwcrf.torch_ops.native import differentiated, empty, kept_property, plain, untraced
from fwcrf.torch_ops.precision import running_sums, wide, widest
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.separable import scaled_on_gpu, separable_filter


@dataclass(frozen=True, eq=False)
class Separable(Operator):
    """K_ij = prod_a exp(-(i_a - j_a)^2 / (2 s_a^2)) over the pixels of a grid, zero outside it.

    Exact to float rounding: taps below half a unit of rounding are left out, which is beyond 5.8
    standard deviations in float32 and 8.6 in float64.

    Its row sums, and so the factors that normalise it, are products over the axes: the normalised kernel is
    still a product of one matrix per axis.
    """

    nonnegative = True
    shape: tuple[int, ...]
    taps: tuple[Tensor, ...]  # per axis, from the centre outwards
    left: tuple[Tensor, ...] | None = None  # per axis, factors of the rows
    right: tuple[Tensor, ...] | None = None  # per axis, factors of the columns

    __repr__ = in_one_line

    @staticmethod
    def build(shape: Sequence[int], xy: float | Sequence[float] | Tensor, like: Tensor) -> Separable:
        """The kernel over a grid, with standard deviations ``xy``, in the dtype and device of ``like``.

        Differentiable in ``xy`` if that is a tensor.
        """
        reach = math.sqrt(-2 * math.log(torch.finfo(like.dtype).eps / 2))
        taps = []
        scales = bandwidths(xy, len(shape), "xy")
        learned = wide(xy).expand(len(shape)) if isinstance(xy, Tensor) else scales
        for size, known, s in zip(shape, scales, learned, strict=True):
            radius = min(size - 1, math.ceil(reach * known))
            device = s.device if isinstance(s, Tensor) else like.device
            offsets = torch.arange(radius + 1, dtype=widest(device), device=device) / s
            taps.append((-0.5 * offsets.square()).exp().to(like))
        return Separable(tuple(shape), tuple(taps))

    @property
    def is_symmetric(self) -> bool:  # type: ignore[override]
        return self.left is self.right

    @property
    def n(self) -> int:  # type: ignore[override]
        return math.prod(self.shape)

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        return torch.Size()

    @property
    def example(self) -> Tensor:
        return self.taps[0]

    @property
    def too_wide(self) -> bool:
        """True if the bands of an axis would take more memory than the engine may use for them."""
        return any(map(too_wide, self.shape, self.taps))

    @cached_property
    def banded(self) -> tuple[Any, ...] | None:
        """The banded factors of every axis and the taps of the last one: the arguments of ``add_grid``.

        None if the bands would take more memory than the engine may use for them.
        """
        if self.too_wide:
            return None
        axes = self._factors
        left, right = self._scales
        return (
            [len(f.down.first) for f in axes],
            [f.down for f in axes],
            [f.middle for f in axes],
            [f.up for f in axes],
            tuple(t.detach().contiguous().numpy() for t in (self.taps[-1], left[-1], right[-1])),
        )

    @property
    def coarse(self) -> list[Factors] | None:
        """The factors of every axis if all have a coarse grid, and the kernel is symmetric."""
        if self.too_wide or self.left is not self.right:
            return None
        return None if any(axis.middle is None for axis in self._factors) else self._factors

    @cached_property
    def _factors(self) -> list[Factors]:
        return [factors(*axis) for axis in zip(self.shape, self.taps, *self._scales, strict=True)]

    @property
    def _scales(self) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The factors of rows and columns along each axis."""
        ones = [t.new_ones(n) for n, t in zip(self.shape, self.taps, strict=True)]
        return self.left or ones, self.right or ones

    def apply(self, x: Tensor) -> Tensor:
        taps = [t.to(x.dtype) for t in self.taps]
        flat = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        if (
            not x.is_cpu
            and (found := scaled_on_gpu(flat, self.shape, taps, self.left, self.right)) is not None
        ):
            return found.view(x.shape)
        if self.right is not None:
            flat = _product(self.right).to(x.dtype).unsqueeze(-1) * flat
        y = separable_filter(flat, self.shape, taps)
        if self.left is not None:
            y = _product(self.left).to(x.dtype).unsqueeze(-1) * y
        return y.view(x.shape)

    def apply_shifted(self, x: Tensor, shift: Tensor) -> Tensor:
        if not x.is_cpu and shift.dim() == 1:
            flat = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
            taps = [t.to(x.dtype) for t in self.taps]
            found = scaled_on_gpu(flat, self.shape, taps, self.left, self.right, shift)
            if found is not None:
                return found.view(x.shape)
        return super().apply_shifted(x, shift)

    @property
    def T(self) -> Operator:
        return replace(self, left=self.right, right=self.left)

    def diagonal(self) -> Tensor:
        if self.left is None or self.right is None:
            return self.example.new_ones(self.n)
        return _product([a * b for a, b in zip(self.left, self.right, strict=True)])

    def without_self_edges(self) -> Operator:
        if self.left is None or self.right is None:
            return super().without_self_edges()
        kept = self.n <= _KEPT_PIXELS and untraced(self.example)
        return self.shifted(self._kept_minus if kept else self._minus_diagonal())

    @kept_property  # of the kernel, which is kept for the next image of its size
    def _kept_minus(self) -> Tensor:
        return self._minus_diagonal()

    def _minus_diagonal(self) -> Tensor:
        assert self.left is not None and self.right is not None
        first, *rest = (a * b for a, b in zip(self.left, self.right, strict=True))
        return _product([-first, *rest])

    def row_sums(self) -> Tensor:
        return super().row_sums() if self.left is not None else _product(self._line_sums())

    def normalized(self, mode: Normalization) -> Operator:
        check_normalization(mode)
        if mode == "none" or self.left is not None:
            return super().normalized(mode)
        sums = self._line_sums()
        ones = tuple(torch.ones_like(s) for s in sums)
        if mode == "symmetric":
            factors = tuple(s.rsqrt() for s in sums)
            return replace(self, left=factors, right=factors)
        inverse = tuple(1 / s for s in sums)
        left, right = (ones, inverse) if mode == "before" else (inverse, ones)
        return replace(self, left=left, right=right)

    def _line_sums(self) -> tuple[Tensor, ...]:
        """The row sums of the kernel along each axis."""
        lines = []
        for size, taps in zip(self.shape, self.taps, strict=True):
            # On each side of a pixel, the taps end at the border.
            side = running_sums(wide(taps))
            reach = torch.arange(size, device=taps.device).clamp(max=len(taps) - 1)
            lines.append((side[reach] + side[reach.flip(0)] - side[0]).to(taps.dtype))
        return tuple(lines)


# The sum of the axes of a grid whose kernel is kept for the next image.
KEPT_LENGTH = 1 << 14
# Up to so many pixels, a kernel keeps its diagonal, too.
_KEPT_PIXELS = 1 << 14


@lru_cache(maxsize=16)  # the next image has the same size more often than not
def plain_separable(
    shape: tuple[int, ...], xy: tuple[float, ...], dtype: torch.dtype, normalization: Normalization
) -> Operator:
    """The normalised kernel on the CPU, for bandwidths that are plain numbers."""
    with plain():
        like = torch.empty((), dtype=dtype, device="cpu")
        return Separable.build(shape, xy, like).normalized(normalization)


@lru_cache(maxsize=16)
def plain_separable_on(
    device: torch.device,
    shape: tuple[int, ...],
    xy: tuple[float, ...],
    dtype: torch.dtype,
    normalization: Normalization,
) -> Operator:
    """``plain_separable`` on another device, copied once."""
    # Not kept on the CPU, too: the copy of a fake device begins with fake numbers.
    K = plain_separable.__wrapped__(shape, xy, dtype, normalization)
    assert isinstance(K, Separable)
    with plain():
        lines = [
            None if t is None else tuple(a.to(device, non_blocking=True) for a in t)
            for t in (K.taps, K.left, K.right)
        ]
    return replace(K, taps=lines[0], left=lines[1], right=lines[2])


def _product(axes: Sequence[Tensor]) -> Tensor:
    """The outer product of numbers along each axis, over the grid: ``(n,)``."""
    product = axes[0]
    for axis in axes[1:]:
        size = len(product) * len(axis)
        plain = product.is_cpu and untraced(product) and not differentiated(product, axis)
        out = empty((len(product), len(axis)), product.dtype) if plain and size else None
        product = torch.mul(product[:, None], axis, out=out).flatten()
    return product
