"""The Gaussian kernel on a permutohedral lattice: linear time in any dimension from 1 to 16.

Values are splatted onto the corners of the lattice simplex around each point, blurred along the
d + 1 lattice axes, and sliced back [Adams et al. 2010]::

    K = c S (B + beta I) S' + diag(e),      B = (A_0 ... A_d + A_d ... A_0) / 2

*Symmetry.* Where cells are missing the blurs A_j do not commute, so one order of axes alone is
asymmetric by some percent. Averaging the blur with its reverse between one splat and one slice makes
K symmetric to float rounding, and costs one more blur, which is a small part of a filter.

*Scale.* c is fitted per image to the exact kernel on a sample of pairs of points: see
``calibration``.

*Shape.* A point in the middle of its simplex is splatted wider than one at a corner. Two corrections
that cost nothing per filter reduce the difference: from three dimensions on, weights scaled by a function
of the point's place in its simplex; from four on, also a (negative) share beta of unblurred values.

*Diagonal.* The diagonal of the lattice kernel is known exactly (see ``csrc/lattice/build.hpp``), so that it
can be replaced by the diagonal of the Gaussian, which is 1, or removed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from fwcrf.kernels import calibration
from fwcrf.kernels.operator import Operator, broadcast, check_features
from fwcrf.lattice_geometry import MAX_DIMENSION, TAP
from fwcrf.torch_ops import lattice as ops
from fwcrf.torch_ops import lattice_torch
from fwcrf.torch_ops.native import check_finite, has_values, plain, warn_caller
from fwcrf.torch_ops.precision import wide
from fwcrf.torch_ops.printed import in_one_line

Engine = Literal["native", "torch"]
BlurOrder = Literal["symmetric", "forward", "reverse"]

ORDERS: dict[BlurOrder, int] = {"symmetric": 0, "forward": 1, "reverse": 2}


@dataclass(frozen=True, eq=False)
class Lattice(Operator):
    """A built lattice; ``Lattice.build`` makes one from features."""

    index: Tensor  # (*batch, n, d + 1), corner vertices of each point
    splat: Tensor  # (*batch, n, d + 1), weights onto the lattice
    slice: Tensor  # (*batch, n, d + 1), weights off the lattice; the same tensor if symmetric
    order: Tensor  # (*batch, n, words), axes leading from corner to corner, packed
    neighbors: Tensor  # (d + 1, vertices, 2)
    shift: Tensor | None = None  # (*batch, n), added to the diagonal
    identity: float = 0.0
    blur: BlurOrder = "symmetric"
    engine: Engine = "native"
    # Minus the diagonal of S (B + beta I) S', filled on first use.
    _minus: list[Tensor] = field(default_factory=list, repr=False)
    # Sums of a sample of pairs, exact and by the lattice before its factor; and the factor. Empty if unknown.
    _sums: list[Tensor] = field(default_factory=list, repr=False)

    __repr__ = in_one_line

    @property
    def is_symmetric(self) -> bool:  # type: ignore[override]
        return self.slice is self.splat and self.blur == "symmetric"

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        return all(bool((weights >= 0).all()) for weights in (self.splat, self.slice))

    @staticmethod
    def build(
        features: Tensor,  # (*batch, n, d), in standard deviations
        *,
        blur: BlurOrder = "symmetric",
        engine: Engine | None = None,
    ) -> Lattice:
        """The lattice of ``features``, scaled so that K_ij is close to exp(-|f_i - f_j|^2 / 2).

        The native engine serves CPU tensors, every other device gets the torch engine, which builds the same
        lattice. Both are differentiable in the features: inside its simplex a point's weights are linear.
        """
        lattice, factor = Lattice._fitted(features, blur, engine)
        return lattice._placed(lattice_shape(features.shape[-1]).place, factor)

    @staticmethod
    def symmetric(features: Tensor) -> Operator:
        """``build(features).with_unit_diagonal().normalized("symmetric")``, in two passes over the points.

        No entry is negative, and the diagonal is 1: so row sums need no look, for which the host would have
        to wait for a GPU.
        """
        lattice, factor = Lattice._fitted(features)
        place = lattice_shape(features.shape[-1]).place
        tables = lattice.index, lattice.splat, lattice.order, lattice.neighbors
        found = None
        if lattice.engine == "native" or not features.is_cpu:
            found = ops.symmetric_lattice(*tables, factor.sqrt(), 0.5 * place, TAP, lattice.identity)
        if found is None:
            K = lattice._placed(place, factor).with_unit_diagonal()
            return K.scaled(K.row_sums().rsqrt())
        weight, shift, minus = found
        return replace(lattice, splat=weight, slice=weight, shift=shift, _minus=[minus])

    @staticmethod
    def of_image(
        values: Tensor,
        grid: Sequence[int],
        scales: Sequence[float],
        origin: Sequence[int] | None,
        dtype: torch.dtype,
    ) -> Lattice | None:
        """``symmetric`` of the pixels of images ``(*batch, n, channels)``, in one native call.

        ``scales`` are the bandwidths of axes and channels. None if that call does not take the values, or if
        they are not finite.
        """
        d, n = len(scales), values.shape[-2]
        shape = lattice_shape(d)
        sample = calibration.chosen(n, calibration.ROWS)
        first = origin if origin is not None and any(origin) else ()
        found = ops.image_lattice(
            values, dtype, grid, scales, first, _factors(d), sample, shape.place, shape.constant, TAP,
            shape.identity,
        )  # fmt: skip
        if found is None:
            return None
        neighbors, index, weight, shift, minus = found
        neighbors = torch.from_numpy(neighbors)
        _warn_if_identity(neighbors, index)
        # Only the diagonal reads the order of the axes, and it is known.
        order = index.new_empty((*index.shape[:-1], 0), dtype=torch.int64)
        return Lattice(index, weight, weight, order, neighbors, shift, shape.identity, _minus=[minus])

    @staticmethod
    def _fitted(
        features: Tensor, blur: BlurOrder = "symmetric", engine: Engine | None = None
    ) -> tuple[Lattice, Tensor]:
        """The plain lattice, and the factor ``(*batch, 1)`` that ``_placed`` must give to its kernel."""
        d = _check_features(features)
        engine = engine or ("native" if features.is_cpu else "torch")
        shape = lattice_shape(d)
        lattice = Lattice._plain(features, blur, engine, shape.identity)
        n, sums = features.shape[-2], None
        if n > 1:
            points, rows = calibration.chosen(n, calibration.ROWS)
            sums = lattice._sampled_sums(features, torch.from_numpy(points), rows, shape.place)
        if sums is None:
            return lattice, calibration.scale(features, lattice, shape.constant, place=shape.place)
        factor = ops.fitted_scale(*sums, shape.constant, features.dtype)
        lattice._sums.extend((*sums, factor))
        return lattice, factor

    @property
    def sampled_error(self) -> float | None:
        """The error of sums over a sample of pairs, relative to the exact kernel; None if not known."""
        if not self._sums:
            return None
        exact, approximate, factor = map(wide, self._sums)
        norm = exact.norm()
        return float((factor * approximate - exact).norm() / norm) if norm > 1e-3 else None

    @staticmethod
    def uncalibrated(
        features: Tensor, *, blur: BlurOrder = "symmetric", engine: Engine = "native", identity: float = 0.0
    ) -> Lattice:
        """The plain lattice: centre weight 1 of the blur, nothing fitted to the kernel."""
        _check_features(features)
        return Lattice._plain(features, blur, engine, identity)

    @staticmethod
    def _plain(features: Tensor, blur: BlurOrder, engine: Engine, identity: float) -> Lattice:
        for name, value, known in (("blur", blur, ORDERS), ("engine", engine, get_args(Engine))):
            if value not in known:
                raise ValueError(f"{name}={value!r} is not known; expected one of {', '.join(known)}.")
        d = features.shape[-1]
        flat = features.reshape(-1, *features.shape[-2:]).contiguous()
        scale = _factors(d)
        if engine == "native" or not flat.is_cpu:
            index, weight, order, neighbors = ops.build_lattice(flat, scale)
        else:
            # Plain operations that autograd sees through: the reference in tests of the native engine.
            bounds = ops.quotient_bounds(flat, scale)
            index, weight, order, neighbors = lattice_torch.build(flat, scale, *bounds)
        _warn_if_identity(neighbors, index)
        shape = (*features.shape[:-1], d + 1)
        weight = weight.view(shape)
        return Lattice(
            index.view(shape), weight, weight, order.view(*shape[:-1], -1), neighbors,
            identity=identity, blur=blur, engine=engine,
        )  # fmt: skip

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.index.shape[-2]

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        return self.index.shape[:-2]

    @property
    def vertices(self) -> int:
        return self.neighbors.shape[1]

    @property
    def example(self) -> Tensor:
        return self.splat

    def apply(self, x: Tensor) -> Tensor:
        batch = broadcast(x.shape[:-2], self.batch_shape)
        lattices = (1,) * (len(batch) - len(self.batch_shape)) + tuple(self.batch_shape)
        # Batch axes along which images share a lattice come first.
        sharing = [a for a in range(len(batch)) if lattices[a] == 1]
        axes = sharing + [a for a in range(len(batch)) if lattices[a] > 1]
        shared = math.prod([batch[a] for a in sharing])
        rows = math.prod(lattices) * self.n
        arranged = x.expand(*batch, *x.shape[-2:]).permute(*axes, -2, -1)
        stacked = arranged.reshape(shared, rows, x.shape[-1])
        tables = (
            self.index.flatten(0, -2),
            self.splat.to(x.dtype).flatten(0, -2),
            None if self.slice is self.splat else self.slice.to(x.dtype).flatten(0, -2),
            self.neighbors,
            None if self.shift is None else self.shift.to(x.dtype).flatten(),
        )
        settings = (TAP, self.identity, ORDERS[self.blur])
        if self.engine == "torch" and x.is_cpu:
            # Plain operations that autograd sees through: the reference in tests of the native filter.
            check_finite(x, "x")
            y = lattice_torch.filter(stacked, *tables, *settings)
        else:
            y = ops.lattice_filter(stacked, *tables, *settings)
        y = y.view(arranged.shape)
        return y.permute(*[axes.index(a) for a in range(len(batch))], -2, -1)

    def add_slopes(
        self, x: Tensor, g: Tensor, matrix: Tensor | None, of_weights: Tensor, of_shift: Tensor
    ) -> None:
        """Add the derivatives of <g, K x M> in the weights and the shift, of a symmetric kernel and matrix.

        M is the identity if ``matrix`` is None. x has the batch of the lattice, or any batch if the lattice
        has none. Without gradients.
        """
        rows = self.index[..., 0].numel()
        x, g = (t.detach().reshape(-1, rows, t.shape[-1]) for t in (x, g))
        index, splat = self.index.flatten(0, -2), self.splat.flatten(0, -2)
        totals = of_weights.view(splat.shape), of_shift.view(rows)
        ops.add_filter_slopes(x, g, matrix, index, splat, self.neighbors, TAP, self.identity, *totals)

    @property
    def T(self) -> Lattice:
        transposed: dict[BlurOrder, BlurOrder] = {
            "symmetric": "symmetric", "forward": "reverse", "reverse": "forward",
        }  # fmt: skip
        return replace(self, splat=self.slice, slice=self.splat, blur=transposed[self.blur])

    def diagonal(self) -> Tensor:
        if not self._minus:
            assert self.slice is self.splat, "the diagonal is found before rows and columns differ"
            plainly = self.engine == "torch" and self.splat.is_cpu
            find = lattice_torch.diagonal if plainly else ops.lattice_diagonal
            with plain():
                index, weight, order = (t.flatten(0, -2) for t in (self.index, self.splat, self.order))
                out = find(weight, index, order, self.neighbors, TAP, self.identity)
                self._minus.append(-out.view(self.index.shape[:-1]))
        minus = self._minus[0]
        return -minus if self.shift is None else self.shift - minus

    def restricted(self, points: Tensor) -> Lattice:
        """The block of K over the points with these indices."""
        pick = lambda t: t.index_select(-2, points)  # noqa: E731
        splat = pick(self.splat)
        return replace(
            self,
            index=pick(self.index),
            splat=splat,
            slice=splat if self.slice is self.splat else pick(self.slice),
            order=pick(self.order),
            shift=None if self.shift is None else self.shift[..., points],
            _minus=[t[..., points] for t in self._minus],
        )

    def _sampled_sums(
        self, features: Tensor, points: Tensor, rows: int, place: float
    ) -> tuple[Tensor, Tensor] | None:
        """``torch_ops.lattice.sampled_sums`` of this lattice; None if it is not plain or not native."""
        if self.engine != "native" or self.slice is not self.splat or self.shift is not None:
            return None
        tables = self.index, self.splat, self.neighbors
        settings = 0.5 * place, TAP, self.identity, ORDERS[self.blur]
        return ops.sampled_sums(features, points, rows, *tables, *settings)

    def _placed(self, place: float, factor: Tensor) -> Lattice:
        """K times a factor ``(*batch, 1)``, with weights scaled by place in the simplex: see ``_Shape``."""
        weight = ops.placed(self.splat, 0.5 * place, factor.sqrt())
        return replace(self, splat=weight, slice=weight)

    def _takes(self, vector: Tensor) -> bool:
        """True if a vector broadcasts to the lattice's batch, so that the tables can absorb it."""
        return broadcast(vector.shape, self.index.shape[:-1]) == self.index.shape[:-1]

    def scaled(self, left: Tensor, right: Tensor | None = None) -> Operator:
        if all(v is None or self._takes(v) for v in (left, right)):
            return self._absorb(left, right)
        return super().scaled(left, right)

    def _absorb(self, left: Tensor, right: Tensor | None = None) -> Lattice:
        if right is None and self.slice is self.splat:
            known = [*self._minus, *([] if self.shift is None else [self.shift])]
            weight, scaled = ops.scaled_both_ways(self.splat, left, known)
            return replace(
                self,
                splat=weight,
                slice=weight,
                shift=None if self.shift is None else scaled[-1],
                _minus=scaled[: len(self._minus)],
            )
        if right is None:
            right = left
        elif not self._minus:
            self.diagonal()
        return replace(
            self,
            splat=ops.scaled_rows(self.splat, right),
            slice=ops.scaled_rows(self.slice, left),
            shift=None if self.shift is None else left * self.shift * right,
            _minus=[left * t * right for t in self._minus],
        )

    def shifted(self, shift: Tensor) -> Operator:
        if not self._takes(shift):
            return super().shifted(shift)
        shift = shift.expand(self.index.shape[:-1])
        return replace(self, shift=shift if self.shift is None else self.shift + shift)

    def without_self_edges(self) -> Operator:
        # Every shift that was added to the diagonal is removed as well.
        if not self._minus:
            self.diagonal()
        return replace(self, shift=self._minus[0])


class _Shape(NamedTuple):
    """Constants that fit the kernel of a d-dimensional lattice to a Gaussian: see docs/accuracy.md."""

    identity: float  # beta, relative to the centre weight of the blur
    place: float  # exponent of the sum of squared barycentric weights
    constant: float  # c of an infinite, fully populated lattice


@cache
def _factors(d: int) -> list[float]:
    """The factors of the features before they are embedded."""
    return [math.sqrt(2 / 3) * (d + 1) / math.sqrt((i + 1) * (i + 2)) for i in range(d)]


def lattice_shape(d: int) -> _Shape:
    """The constants of the lattice over d features."""
    cell = (d + 1.0) ** (d - 0.5) / (math.sqrt(2 / 3) * (d + 1)) ** d
    constant = (2 * math.pi) ** (d / 2) / cell / (1 + 2 * TAP) ** (d + 1)
    if d <= 2:
        return _Shape(0.0, 0.0, constant)
    return _Shape(0.0, -0.3, constant) if d == 3 else _Shape(-0.1, -0.6, constant)


def _check_features(features: Tensor) -> int:
    check_features(features)
    d = features.shape[-1]
    if d > MAX_DIMENSION:
        raise ValueError(
            f"features has {d} columns; the lattice takes 1 to {MAX_DIMENSION}. "
            "Reduce them (principal components, for example), or use method='exact' for few points."
        )
    return d


def _warn_if_identity(neighbors: Tensor, index: Tensor) -> None:
    if not has_values(index):
        return
    corners, vertices = neighbors.shape[:2]
    points = index.numel() // corners
    if points > 1 and vertices >= corners * points:
        warn_caller(
            f"all {points} points lie in lattice cells of their own, so the kernel is close to the "
            "identity and does not smooth. The bandwidths are probably too small for the units of the "
            "data: colours of a uint8 image run from 0 to 255, positions are in pixels."
        )
