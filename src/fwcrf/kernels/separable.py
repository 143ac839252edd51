"""The Gaussian over pixel positions of a regular grid, one axis at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.features import bandwidths
from fwcrf.kernels import ops
from fwcrf.kernels.operator import Operator


@dataclass(frozen=True, eq=False)
class Separable(Operator):
    """K_ij = prod_a exp(-(i_a - j_a)^2 / (2 s_a^2)) over the pixels of a grid, zero outside it.

    Exact to float rounding: taps below half a unit of rounding are left out, which is beyond 5.8
    standard deviations in float32 and 8.6 in float64.
    """

    shape: tuple[int, ...]
    taps: tuple[Tensor, ...]  # per axis, from the centre outwards

    @staticmethod
    def build(shape: Sequence[int], xy: float | Sequence[float] | Tensor, like: Tensor) -> Separable:
        """For a grid of ``shape`` with standard deviations ``xy``, in the dtype and device of ``like``.

        Differentiable in ``xy`` if that is a tensor.
        """
        reach = math.sqrt(-2 * math.log(torch.finfo(like.dtype).eps / 2))
        taps = []
        scales = bandwidths(xy, len(shape), "xy")
        learned = xy.double().expand(len(shape)) if isinstance(xy, Tensor) else scales
        for size, known, s in zip(shape, scales, learned, strict=True):
            radius = min(size - 1, math.ceil(reach * known))
            device = s.device if isinstance(s, Tensor) else None
            offsets = torch.arange(radius + 1, dtype=torch.float64, device=device) / s
            taps.append((-0.5 * offsets.square()).exp().to(like))
        return Separable(tuple(shape), tuple(taps))

    @property
    def n(self) -> int:  # type: ignore[override]
        return math.prod(self.shape)

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        return torch.Size()

    @property
    def example(self) -> Tensor:
        return self.taps[0]

    def apply(self, x: Tensor) -> Tensor:
        taps = [t.to(x.dtype) for t in self.taps]
        flat = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
        return ops.separable_filter(flat, self.shape, taps).view(x.shape)

    @property
    def T(self) -> Operator:
        return self

    def diagonal(self) -> Tensor:
        return self.example.new_ones(self.n)

    def row_sums(self) -> Tensor:
        sums = torch.ones(1, dtype=torch.float64, device=self.example.device)
        for size, taps in zip(self.shape, self.taps, strict=True):
            # The taps on one side of a pixel are those up to the border.
            side = taps.double().cumsum(0)
            reach = torch.arange(size, device=taps.device).clamp(max=len(taps) - 1)
            line = side[reach] + side[reach.flip(0)] - side[0]
            sums = (sums[:, None] * line).flatten()
        return sums.to(self.example.dtype)
