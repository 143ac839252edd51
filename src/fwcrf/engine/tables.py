"""Tables of a kernel, its weights and diagonals, through which bandwidths and features are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fwcrf.engine.coarse import CoarseSums
from fwcrf.kernels.lattice import Lattice
from fwcrf.kernels.operator import Operator, Shifted
from fwcrf.kernels.separable import Separable
from fwcrf.torch_ops.lattice import add_row_products

_TOGETHER = 8  # labels whose filtered values are in memory at the same time


def tables(operator: Operator) -> list[Tensor]:
    """The tables of a symmetric kernel of the engine, in a fixed order."""
    if isinstance(operator, Lattice):
        return [operator.splat] if operator.shift is None else [operator.splat, operator.shift]
    if isinstance(operator, Shifted):
        return [*tables(operator.inner), operator.shift]
    if isinstance(operator, Separable):
        return [*operator.taps, *(operator.left or ())]
    return []


class Slopes(Protocol):
    """The sum over steps of the derivatives of <g, K x M> in the tables of a kernel, M symmetric.

    ``add`` adds a step. A native run that has the spreads of its steps adds to ``native``, derivatives in
    weights and in a diagonal: where ``of_steps`` is False, ``add`` is not needed after such a run.
    """

    of_steps: bool

    @property
    def native(self) -> tuple[Tensor | None, Tensor | None]: ...

    def add(self, x: Tensor, g: Tensor) -> None: ...

    def found(self) -> list[Tensor]: ...


def slopes(
    operator: Operator, given: Sequence[Tensor], matrix: Tensor | None = None, *, spread: bool = False
) -> Slopes:
    """An empty sum of derivatives in the tables ``given``, which replace the operator's own.

    ``matrix`` is M, by default the identity. ``spread`` if a native run has the spreads of its steps.
    """
    if isinstance(operator, Lattice):
        return LatticeSlopes(operator, given, matrix, spread=spread)
    if isinstance(operator, Shifted):
        inner = slopes(operator.inner, given[:-1], matrix, spread=spread)
        return ShiftedSlopes(inner, given[-1], matrix)
    if not isinstance(operator, Separable):
        raise TypeError(f"{type(operator).__name__} has no tables; expected Lattice or Separable.")
    if operator.coarse is None:
        return TapSlopes(operator, given, matrix)
    return CoarseSlopes(operator, given, matrix, spread=spread)


def coarse_slopes(one: Slopes | None) -> CoarseSlopes | None:
    """The part of a sum that is taken from the spreads of the steps; None if there is none."""
    inner = one.inner if isinstance(one, ShiftedSlopes) else one
    return inner if isinstance(inner, CoarseSlopes) and not inner.of_steps else None


class LatticeSlopes:
    """Of the weights and the shift."""

    def __init__(
        self, operator: Lattice, given: Sequence[Tensor], matrix: Tensor | None, *, spread: bool = False
    ) -> None:
        self.operator: Lattice = with_tables(operator, given)  # type: ignore[assignment]
        self.matrix = matrix
        self.of_steps: bool = not spread
        self.splat: Tensor = torch.zeros_like(given[0], memory_format=torch.contiguous_format)
        self.products: Tensor = self.splat.new_zeros(self.splat.shape[:-1])

    @property
    def native(self) -> tuple[Tensor | None, Tensor | None]:
        if self.of_steps:
            return None, None
        rows = self.splat.shape[-2:]
        return self.splat.view(-1, *rows), self.products.view(-1, rows[0])

    def add(self, x: Tensor, g: Tensor) -> None:
        self.operator.add_slopes(x, g, self.matrix, self.splat, self.products)

    def found(self) -> list[Tensor]:
        return [self.splat] if self.operator.shift is None else [self.splat, self.products]


class ShiftedSlopes:
    """Of the tables of a kernel, and of what is added to its diagonal."""

    def __init__(self, inner: Slopes, shift: Tensor, matrix: Tensor | None) -> None:
        self.inner: Slopes = inner
        self.matrix: Tensor | None = matrix
        self.shift: Tensor = torch.zeros_like(shift, memory_format=torch.contiguous_format)
        self.alike: LatticeSlopes | None = None  # adds up the same products of points
        self.of_steps: bool = inner.of_steps

    @property
    def native(self) -> tuple[Tensor | None, Tensor | None]:
        alone = self.alike is None and not self.of_steps
        return None, self.shift.view(-1, self.shift.shape[-1]) if alone else None

    def add(self, x: Tensor, g: Tensor) -> None:
        self.inner.add(x, g)
        if self.alike is None:
            add_row_products(x, g, self.matrix, self.shift)

    def found(self) -> list[Tensor]:
        if self.alike is not None:
            # The sum over images, which share the shift if it has no batch.
            self.shift = self.alike.products.view(-1, *self.shift.shape).sum(0)
        return [*self.inner.found(), self.shift]


class TapSlopes:
    """Of the taps and the factors of each axis, by a filter with all taps."""

    of_steps: bool = True
    native: tuple[None, None] = (None, None)

    def __init__(self, operator: Separable, given: Sequence[Tensor], matrix: Tensor | None) -> None:
        self.operator: Separable = operator
        self.matrix: Tensor | None = matrix
        self.leaves: list[Tensor] = [t.detach().requires_grad_() for t in given]
        self.totals: list[Tensor] = [torch.zeros_like(t) for t in given]

    def add(self, x: Tensor, g: Tensor) -> None:
        g = g if self.matrix is None else g @ self.matrix
        # Sums over labels: some at a time take less memory.
        for some, others in zip(x.split(_TOGETHER, -1), g.split(_TOGETHER, -1), strict=True):
            with torch.enable_grad():
                filtered = with_tables(self.operator, self.leaves).apply(some.contiguous())
                each = torch.autograd.grad(filtered, self.leaves, others)
            for total, slope in zip(self.totals, each, strict=True):
                total += slope

    def found(self) -> list[Tensor]:
        return self.totals


class CoarseSlopes:
    """Of the taps and the factors of each axis, by the coarse grid on which the engine applies the kernel."""

    native: tuple[None, None] = (None, None)

    def __init__(
        self, operator: Separable, given: Sequence[Tensor], matrix: Tensor | None, *, spread: bool = False
    ) -> None:
        assert operator.coarse is not None
        self.of_steps: bool = not spread
        self.axes: int = len(operator.taps)
        self.given = given
        self.sums: CoarseSums = CoarseSums(operator.shape, operator.coarse, matrix)

    def add(self, x: Tensor, g: Tensor) -> None:
        self.sums.add(x, g)

    def add_spread(self, x: Tensor, g: Tensor, labels: int, cell: int) -> None:
        """Add a step from the coarse x and g of an image, as a native run keeps them."""
        self.sums.add_spread(x, g, labels, cell)

    def found(self) -> list[Tensor]:
        taps, left = self.given[: self.axes], self.given[self.axes :]
        of_taps, of_left = [], []
        for axis, of_matrix in enumerate(self.sums.found(taps)):
            # The matrix of an axis is left_i taps_|i-j| left_j.
            t, reach = taps[axis], len(taps[axis]) - 1
            both = torch.nn.functional.pad(of_matrix + of_matrix.mT, (reach, reach))
            near = both.as_strided((len(both), 2 * reach + 1), (both.stride(0) + 1, 1))
            sums = near.sum(0)
            of_taps.append(torch.cat([sums[reach : reach + 1] / 2, sums[reach + 1 :]]))
            if left:
                of_left.append(near @ torch.cat([t.flip(0), t[1:]]) / left[axis])
        return [*of_taps, *of_left]


def with_tables(operator: Operator, given: Sequence[Tensor]) -> Operator:
    """A kernel with other tables, in the order of ``tables``."""
    if isinstance(operator, Shifted):
        return replace(operator, inner=with_tables(operator.inner, given[:-1]), shift=given[-1])
    if isinstance(operator, Lattice):
        shift = given[1] if operator.shift is not None else None
        return replace(operator, splat=given[0], slice=given[0], shift=shift, _minus=[])
    if not isinstance(operator, Separable):
        return operator
    axes = len(operator.taps)
    factors = tuple(given[axes:]) or None
    return replace(operator, taps=tuple(given[:axes]), left=factors, right=factors)
