"""Kernels as a user names them: settings that become an operator once the image is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from fwcrf.features import bandwidths, bilateral, pixels, positions
from fwcrf.kernels.calibration import row_factor
from fwcrf.kernels.exact import Exact
from fwcrf.kernels.lattice import Lattice, lattice_shape
from fwcrf.kernels.operator import Normalization, Operator, check_features, check_normalization
from fwcrf.kernels.separable import Separable, plain_separable
from fwcrf.torch_ops.native import check_finite, untraced

Weight = float | Sequence[float] | Tensor


class Kernel(Protocol):
    """What a model needs of a kernel: its weight, and an operator for an image."""

    @property
    def weight(self) -> Weight: ...

    def operator(self, image: Tensor | np.ndarray, /) -> Operator: ...


@dataclass(frozen=True)
class Bilateral:
    """Gaussian over position and colour, in standard deviations of pixels and of the image's values.

    ``xy`` is one number, or one per grid axis in the order of the array; ``color`` one number, or one
    per channel. ``weight`` is a number, or one per label.

    >>> import torch
    >>> K = Bilateral(xy=5, color=20).operator(torch.randint(0, 256, (3, 8, 9)))
    >>> K.row_sums().shape
    torch.Size([72])
    """

    xy: float | Sequence[float] | Tensor = 80.0
    color: float | Sequence[float] | Tensor = 13.0
    weight: Weight = 1.0
    method: Literal["lattice", "exact"] = "lattice"
    normalization: Normalization = "symmetric"

    def operator(
        self,
        image: Tensor | np.ndarray,
        *,
        spatial_dims: int = 2,
        channel_axis: int | None = -1,
        origin: Sequence[int] | None = None,
    ) -> Operator:
        """The normalised operator for an image, its diagonal kept; layouts as in ``features.pixels``.

        ``origin`` has the coordinates of the first pixel, if the image is a window of a larger one: windows
        that overlap then share their lattice cells, and so the errors that the lattice makes.
        """
        values, shape = pixels(image, spatial_dims=spatial_dims, channel_axis=channel_axis)
        features = bilateral(values, shape, self.xy, self.color, origin)
        return gaussian(features, self.method, self.normalization)


@dataclass(frozen=True)
class Spatial:
    """Gaussian over pixel position; ``xy`` in pixels, one number or one per grid axis."""

    xy: float | Sequence[float] | Tensor = 3.0
    weight: Weight = 1.0
    method: Literal["separable", "lattice", "exact"] = "separable"
    normalization: Normalization = "symmetric"

    def operator(
        self,
        image: Tensor | np.ndarray,
        *,
        spatial_dims: int = 2,
        channel_axis: int | None = -1,
        origin: Sequence[int] | None = None,
    ) -> Operator:
        """The normalised operator for the grid of an image, its diagonal kept."""
        values, shape = pixels(image, spatial_dims=spatial_dims, channel_axis=channel_axis)
        if self.method == "separable":
            check_normalization(self.normalization)
            if untraced(values) and not isinstance(self.xy, Tensor):
                return plain_separable(
                    shape, bandwidths(self.xy, len(shape), "xy"), values.dtype, self.normalization
                )
            return Separable.build(shape, self.xy, values).normalized(self.normalization)
        if self.method not in ("lattice", "exact"):
            raise ValueError(
                f"method={self.method!r} is not known; expected 'separable', 'lattice' or 'exact'."
            )
        return gaussian(positions(shape, values, self.xy, origin), self.method, self.normalization)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian over feature vectors of the user's own: exp(-(f_i - f_j)' Precision (f_i - f_j) / 2).

    ``precision`` is a positive number, one per feature, or a symmetric positive definite matrix;
    ``None`` takes the features to be in standard deviations already.
    """

    weight: Weight = 1.0
    precision: float | Sequence[float] | Tensor | None = None
    method: Literal["lattice", "exact"] = "lattice"
    normalization: Normalization = "symmetric"

    def operator(self, features: Tensor) -> Operator:  # (*batch, n, D)
        """The normalised operator for features ``(*batch, n, D)``, its diagonal kept."""
        check_features(features)
        if self.precision is not None:
            features = features @ _root(self.precision, features)
        return gaussian(features, self.method, self.normalization)


def gaussian(features: Tensor, method: str, normalization: Normalization) -> Operator:
    """The operator of a Gaussian over features in standard deviations."""
    check_normalization(normalization)
    if method == "exact":
        check_finite(features, "features")
        return Exact(features).normalized(normalization)
    if method == "lattice":
        # Traced code sees one operation with a table of unknown length, and no derivative in the features.
        traced = torch.compiler.is_compiling() and not features.requires_grad
        return _traced(features, normalization) if traced else _on_lattice(features, normalization)
    raise ValueError(f"method={method!r} is not known here; expected 'lattice' or 'exact'.")


def _on_lattice(features: Tensor, normalization: Normalization) -> Operator:
    if normalization == "symmetric":
        return Lattice.symmetric(features)
    operator: Operator = Lattice.build(features)
    if normalization == "none":
        # The other modes divide by the row sums, and by this factor with them.
        operator = operator.scaled(row_factor(features, operator))
    return operator.with_unit_diagonal().normalized(normalization)


@torch.library.custom_op("fwcrf::gaussian_lattice", mutates_args=())
def _tables(features: Tensor, normalization: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    K = _on_lattice(features, normalization)  # type: ignore[arg-type]
    assert isinstance(K, Lattice) and K.shift is not None
    slice = K.slice.new_empty(0) if K.slice is K.splat else K.slice
    return tuple(t.clone() for t in (K.index, K.splat, slice, K.neighbors, K.shift, K.diagonal()))  # type: ignore


@_tables.register_fake
def _(features, normalization):  # type: ignore
    *batch, n, d = features.shape
    vertices = torch.library.get_ctx().new_dynamic_size(min=d + 1)
    weight = features.new_empty(*batch, n, d + 1)
    return (
        torch.empty_like(weight, dtype=torch.int32),
        weight,
        weight.new_empty(0) if normalization in ("symmetric", "none") else torch.empty_like(weight),
        weight.new_empty(d + 1, vertices, 2, dtype=torch.int32),
        weight.new_empty(*batch, n),
        weight.new_empty(*batch, n),
    )


def _traced(features: Tensor, normalization: Normalization) -> Lattice:
    index, splat, slice, neighbors, shift, diagonal = _tables(features, normalization)
    if normalization in ("symmetric", "none"):
        slice = splat
    engine = "native" if features.is_cpu else "torch"
    order = index.new_empty(0)  # of use for the diagonal only, which is known
    return Lattice(
        index, splat, slice, order, neighbors, shift,
        identity=lattice_shape(features.shape[-1]).identity, engine=engine, _minus=[shift - diagonal],
    )  # fmt: skip


def _root(precision: float | Sequence[float] | Tensor, features: Tensor) -> Tensor:
    """A matrix R with R R' = precision."""
    d = features.shape[-1]
    matrix = torch.as_tensor(precision, dtype=features.dtype, device=features.device)
    if matrix.dim() == 0:
        matrix = matrix.expand(d)
    if matrix.dim() == 1 and len(matrix) == d:
        matrix = torch.diag(matrix)
    if matrix.shape != (d, d):
        raise ValueError(
            f"precision has shape {tuple(matrix.shape)}; expected a number, {d} numbers or a {d} x {d} "
            "matrix, one row per feature."
        )
    root, info = torch.linalg.cholesky_ex(matrix)
    if info != 0 or not torch.allclose(matrix, matrix.mT):
        raise ValueError(
            "precision is not symmetric positive definite; for a covariance C pass torch.linalg.inv(C)."
        )
    return root
