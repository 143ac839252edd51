"""Kernels as a user names them, and the points over which they become operators.

A ``Kernel`` is frozen settings; ``kernel.on(domain)`` is the operator over a ``Domain``: the pixels of an
image or of a window of it, points that lie on no grid, or feature vectors. A new kernel is a subclass with
``features`` and ``num_features``, listed in ``fwcrf.presets.KERNELS``.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fwcrf.features import bandwidths, bilateral, check_bandwidth, check_units, pixels, positions, reciprocals
from fwcrf.inputs.arrays import Located, kind
from fwcrf.inputs.numbers import reals, shown
from fwcrf.kernels.calibration import row_factor, signed_error
from fwcrf.kernels.exact import Exact
from fwcrf.kernels.lattice import MAX_DIMENSION, Lattice, lattice_shape
from fwcrf.kernels.operator import Normalization, Operator, check_features, check_normalization
from fwcrf.kernels.separable import KEPT_LENGTH, Separable, plain_separable, plain_separable_on
from fwcrf.torch_ops.native import (
    check_finite,
    differentiated,
    has_values,
    matmul,
    transformed,
    untraced,
    warn_caller,
    with_memory_errors,
)
from fwcrf.torch_ops.printed import in_one_line

Weight = float | Sequence[float] | Tensor
Bandwidth = float | Sequence[float] | Tensor


@dataclass(frozen=True, eq=False)
class Domain:
    """Points over which a kernel is an operator, in row-major order if they are the pixels of a grid."""

    values: Tensor | None  # (*batch, n, channels): colours of pixels or features of points, if any
    grid: tuple[int, ...] | None = None  # None for points that lie on no grid
    origin: Sequence[int] | None = None  # coordinates of the first pixel, for a window of a larger image
    positions: Tensor | None = None  # (*batch, n, axes), if there is no grid
    ignore: Tensor | None = None  # (*batch, n): points that have no neighbours

    __repr__ = in_one_line

    @staticmethod
    def of_image(
        image: Tensor | np.ndarray,
        *,
        spatial_dims: int = 2,
        channel_axis: int | None = -1,
        origin: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
    ) -> Domain:
        """The pixels of an image; layouts and ``dtype`` as in ``features.pixels``."""
        values, grid = pixels(image, spatial_dims=spatial_dims, channel_axis=channel_axis, dtype=dtype)
        return Domain(values, grid, origin)

    @property
    def like(self) -> Tensor | None:
        """A tensor with the dtype and device of the values."""
        return self.values

    def places(self, xy: Bandwidth) -> Tensor:
        """Positions / ``xy``, ``(*batch, n, axes)``."""
        if self.positions is not None:
            return self.positions * reciprocals(xy, "xy", self.positions)
        assert self.grid is not None and self.values is not None
        return positions(self.grid, self.values, xy, self.origin)

    def places_and_values(self, xy: Bandwidth, color: Bandwidth) -> Tensor:
        """Positions / ``xy`` and values / ``color``, concatenated: ``(*batch, n, axes + channels)``."""
        if self.values is None:
            raise ValueError("a Bilateral kernel without features; pass features, or Spatial kernels only.")
        if self.grid is not None:
            return bilateral(self.values, self.grid, xy, color, self.origin)
        parts = (self.places(xy), self.values * reciprocals(color, "color", self.values))
        batch = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
        return torch.cat([part.expand(*batch, -1) for part in parts], -1)


class Stored(Domain):
    """The pixels of images of bytes as they are stored, whose values are made when a kernel asks for them."""

    pixels: Tensor  # (*batch, n, channels) on the CPU, with any strides
    dtype: torch.dtype  # of the values

    def __init__(
        self,
        pixels: Tensor,
        dtype: torch.dtype,
        grid: tuple[int, ...],
        origin: Sequence[int] | None = None,
    ) -> None:
        given = {"pixels": pixels, "dtype": dtype, "grid": grid, "origin": origin}
        self.__dict__.update(given, positions=None, ignore=None)

    @cached_property
    def values(self) -> Tensor:  # type: ignore[override]
        return self.pixels.to(self.dtype)

    @property
    def like(self) -> Tensor:
        return torch.empty((), dtype=self.dtype, device="cpu")


class Kernel(ABC):
    """Frozen settings of a Gaussian kernel: its weight, bandwidths, method and normalization."""

    weight: Weight
    method: str
    normalization: Normalization

    def __post_init__(self) -> None:
        if type(self.weight) is not float:
            reals(self.weight, "weight")
        for name, value in self.bandwidths().items():
            check_bandwidth(value, name)

    @abstractmethod
    def features(self, domain: Domain) -> Tensor:
        """Feature vectors in standard deviations, ``(*batch, n, D)``: K_ij = exp(-|f_i - f_j|^2 / 2)."""

    @abstractmethod
    def num_features(self, axes: int, channels: int) -> int:
        """D, for points with ``axes`` coordinates and ``channels`` values."""

    def bandwidths(self) -> dict[str, Bandwidth]:
        """Standard deviations by field: ``xy`` of positions, ``color`` of values."""
        return {name: getattr(self, name) for name in ("xy", "color") if hasattr(self, name)}

    def with_bandwidths(self, fields: Mapping[str, Bandwidth]) -> Any:
        """The kernel with these standard deviations in place of its own."""
        return replace(self, **fields) if fields else self  # type: ignore[type-var]

    @with_memory_errors
    def on(self, domain: Domain) -> Operator:
        """The normalised operator over a domain, its diagonal kept."""
        if domain.ignore is None:
            return self._operator(domain, self.normalization)
        # A point without neighbours keeps 1 on the diagonal, so that its row can be divided by its sum.
        K = self._operator(domain, "none")
        active = (~domain.ignore).to(K.example.dtype)
        return K.scaled(active).shifted(1 - active).normalized(self.normalization)

    @with_memory_errors
    def operator(
        self,
        image: Tensor | np.ndarray,
        *,
        spatial_dims: int = 2,
        channel_axis: int | None = -1,
        origin: Sequence[int] | None = None,
    ) -> Operator:
        """The normalised operator for an image, its diagonal kept; layouts as in ``features.pixels``.

        ``origin`` is the coordinates of the first pixel, if the image is a window of a larger one: windows
        that overlap then share their lattice cells, and so the errors of the lattice.
        """
        return self.on(
            Domain.of_image(image, spatial_dims=spatial_dims, channel_axis=channel_axis, origin=origin)
        )

    def check_values(
        self,
        sample: Callable[[], Tensor],
        kind: str,
        name: str,
        shape: Sequence[int],
        axes: int,
        channels: int,
    ) -> None:
        """Refuse more channels than the kernel takes; warn if the units of values do not fit its bandwidths.

        ``sample()`` returns some of the values, and is called only if the dtype leaves doubt; ``kind`` is
        "byte" or "i" for whole numbers, of 8 bits or more, and "f" for floating point.
        """
        if "color" not in (found := self.bandwidths()):
            return
        if self.image_method == "lattice" and self.num_features(axes, channels) > MAX_DIMENSION:
            volume = "If they are the slices of a volume, pass spatial_dims=3. " if name == "image" else ""
            raise ValueError(
                f"{name} has shape {tuple(shape)}, which is {channels} channels; expected at most "
                f"{MAX_DIMENSION - axes} beside {axes} positions. Channels are on the last axis of a numpy "
                f"array (or pass channel_axis=), and before the grid in a torch tensor. {volume}If there are "
                "so many, reduce them, by principal components for example."
            )
        check_units(sample, kind, bandwidths(found["color"], channels, "color"), name)

    def floats_per_point(self, axes: int, channels: int) -> int:
        """The number of floats per point at the peak of memory, while the operator is built."""
        features = self.num_features(axes, channels)
        return 26 * (features + 1) if self.image_method == "lattice" else features

    @property
    def image_method(self) -> str:
        """The method over an image, where "auto" is a lattice."""
        return "lattice" if self.method == "auto" else self.method

    def method_over(self, grid: Sequence[int], dtype: torch.dtype) -> str:
        """``image_method`` over a grid; another word if the engine refuses the kernel for its width."""
        return self.image_method

    def _operator(self, domain: Domain, normalization: Normalization) -> Operator:
        return _gaussian(self, domain, normalization)


def in_pixels(kernel: Kernel, spacing: float | Sequence[float], dims: int) -> Kernel:
    """The kernel with position bandwidths in pixels instead of units of ``spacing``."""
    xy = kernel.bandwidths().get("xy")
    if xy is None:
        return kernel
    steps = bandwidths(spacing, dims, "spacing")
    scales = zip(bandwidths(xy, dims, "xy"), steps, strict=True)
    return kernel.with_bandwidths({"xy": tuple(s / step for s, step in scales)})


@dataclass(frozen=True)
class Bilateral(Kernel):
    """Gaussian over position and colour, in standard deviations of pixels and of the image's values.

    ``xy`` is one number, or one per grid axis in the order of the array; ``color`` one number, or one
    per channel. ``weight`` is a number, or one per label.

    >>> import torch
    >>> K = Bilateral(xy=5, color=20).operator(torch.randint(0, 256, (3, 8, 9)))
    >>> K.row_sums().shape
    torch.Size([72])
    """

    xy: Bandwidth = 80.0
    color: Bandwidth = 13.0
    weight: Weight = 1.0
    method: Literal["auto", "lattice", "exact"] = "auto"
    normalization: Normalization = "symmetric"

    __repr__ = in_one_line

    def features(self, domain: Domain) -> Tensor:
        return domain.places_and_values(self.xy, self.color)

    def num_features(self, axes: int, channels: int) -> int:
        return axes + channels

    def _operator(self, domain: Domain, normalization: Normalization) -> Operator:
        if self.image_method != "lattice" or normalization != "symmetric" or domain.grid is None:
            return super()._operator(domain, normalization)
        K, values = None, domain.pixels if isinstance(domain, Stored) else domain.values
        learned = [t for t in (self.xy, self.color) if isinstance(t, Tensor)]
        if values is not None and untraced(values) and not differentiated(values, *learned):
            xy = bandwidths(self.xy, len(domain.grid), "xy")
            scales = (*xy, *bandwidths(self.color, values.shape[-1], "color"))
            like: Any = domain.like
            K = Lattice.of_image(values.detach(), domain.grid, scales, domain.origin, like.dtype)
        return super()._operator(domain, normalization) if K is None else K


@dataclass(frozen=True)
class Spatial(Kernel):
    """Gaussian over pixel position; ``xy`` in pixels, one number or one per grid axis."""

    xy: Bandwidth = 3.0
    weight: Weight = 1.0
    method: Literal["separable", "auto", "lattice", "exact"] = "separable"
    normalization: Normalization = "symmetric"

    __repr__ = in_one_line

    def features(self, domain: Domain) -> Tensor:
        return domain.places(self.xy)

    def num_features(self, axes: int, channels: int) -> int:
        return axes

    def method_over(self, grid: Sequence[int], dtype: torch.dtype) -> str:
        like = torch.empty((), dtype=dtype, device="cpu")
        wide = self.method == "separable" and Separable.build(grid, self.xy, like).too_wide
        return "separable, too wide" if wide else self.image_method

    def _operator(self, domain: Domain, normalization: Normalization) -> Operator:
        if self.method not in ("separable", "auto", "lattice", "exact"):
            raise ValueError(
                f"method={self.method!r} is not known; expected 'separable', 'auto', 'lattice' or 'exact'."
            )
        if self.method != "separable" or domain.grid is None:
            # Points that lie on no grid have no axes to filter along.
            kernel = replace(self, method="auto") if self.method == "separable" else self
            return _gaussian(kernel, domain, normalization)
        values, grid = domain.like, domain.grid
        assert values is not None
        if untraced(values) and not isinstance(self.xy, Tensor):
            # A long kernel is not kept.
            build = plain_separable if sum(grid) <= KEPT_LENGTH else plain_separable.__wrapped__
            return build(grid, bandwidths(self.xy, len(grid), "xy"), values.dtype, normalization)
        if not values.is_cpu and not isinstance(self.xy, Tensor) and not transformed(values):
            build = plain_separable_on if has_values(values) else plain_separable_on.__wrapped__
            xy = bandwidths(self.xy, len(grid), "xy")
            return build(values.device, grid, xy, values.dtype, normalization)
        return Separable.build(grid, self.xy, values).normalized(normalization)


@dataclass(frozen=True)
class Gaussian(Kernel):
    """Gaussian over feature vectors of the user: exp(-(f_i - f_j)' Precision (f_i - f_j) / 2).

    ``precision`` is a positive number, one per feature, or a symmetric positive definite matrix;
    ``None`` takes the features to be in standard deviations already. Over an image, its channels are the
    features; over points without features, their positions.
    """

    weight: Weight = 1.0
    precision: float | Sequence[float] | Tensor | None = None
    method: Literal["auto", "lattice", "exact"] = "auto"
    normalization: Normalization = "symmetric"

    __repr__ = in_one_line

    def operator(self, features: Tensor) -> Operator:  # type: ignore[override]
        """The normalised operator for features ``(*batch, n, D)``, its diagonal kept."""
        return self.on(Domain(features))

    def features(self, domain: Domain) -> Tensor:
        features = domain.positions if domain.values is None else domain.values
        check_features(features)  # type: ignore[arg-type]
        assert features is not None
        return features if self.precision is None else matmul(features, _root(self.precision, features))

    def num_features(self, axes: int, channels: int) -> int:
        return channels or axes


@dataclass(frozen=True)
class Foreign(Kernel):
    """A kernel of the user's own whose ``operator(image)`` is its definition; everything else is optional."""

    kernel: Any
    method: str = "foreign"

    __repr__ = in_one_line

    @property
    def weight(self) -> Weight:  # type: ignore[override]
        return self.kernel.weight

    @property
    def normalization(self) -> Normalization:  # type: ignore[override]
        return getattr(self.kernel, "normalization", "none")

    def features(self, domain: Domain) -> Tensor:
        raise TypeError(f"kernel {self.kernel!r} has no features; expected a fwcrf.kernels.Kernel.")

    def num_features(self, axes: int, channels: int) -> int:
        return axes + channels

    def floats_per_point(self, axes: int, channels: int) -> int:
        return 26 * (axes + channels + 1)  # as a lattice, which takes most

    def bandwidths(self) -> dict[str, Bandwidth]:
        return {name: getattr(self.kernel, name) for name in ("xy", "color") if hasattr(self.kernel, name)}

    def with_bandwidths(self, fields: Mapping[str, Bandwidth]) -> Foreign:
        return Foreign(replace(self.kernel, **fields)) if fields else self

    def _operator(self, domain: Domain, normalization: Normalization) -> Operator:
        kernel = self.kernel
        if domain.grid is None or domain.values is None:
            raise TypeError(
                f"kernel {kernel!r} is for images; expected a subclass of fwcrf.kernels.Kernel, such as "
                "Spatial, Bilateral or Gaussian."
            )
        if normalization != self.normalization:
            kernel = replace(kernel, normalization=normalization)
        if isinstance(kernel, Gaussian):
            return kernel.operator(domain.values)
        taken = inspect.signature(kernel.operator).parameters
        every = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        layout = {"spatial_dims": len(domain.grid), "origin": domain.origin}
        settings = {name: value for name, value in layout.items() if every or name in taken}
        return kernel.operator(domain.values.mT.unflatten(-1, domain.grid), **settings)


# Up to this many points for each corner of a lattice simplex, "auto" is exact. From MANY_FEATURES on, where
# lattices are far off, it is exact for at least SOME_POINTS: 16 to 24 ms, 1 to 8 times the lattice's time.
FEW_POINTS, SOME_POINTS, MANY_FEATURES = 80, 1024, 5
# Beyond this error of sampled sums, a lattice over points is reported.
MOST_ERROR = 0.2


def check_image(image: Located, kernels: Sequence[Kernel]) -> None:
    """Refuse an image that the kernels do not take; warn if its units do not fit the bandwidths."""
    found, shape = kind(image.array), tuple(image.array.shape)
    if found not in "if":
        raise TypeError(
            f"image has dtype {image.array.dtype}; expected whole or floating-point numbers: convert it "
            "first."
        )
    if found == "i" and image.array.dtype.itemsize == 1:
        found = "byte"
    axes, channels = len(image.grid), image.channels or 1
    for kernel in kernels:
        kernel.check_values(image.sample, found, "image", shape, axes, channels)


def read_kernels(kernels: Any) -> tuple[Kernel, ...]:
    """The kernels that a user passes, each as a ``Kernel``."""
    if hasattr(kernels, "operator"):
        kernels = (kernels,)
    several = isinstance(kernels, Iterable) and not isinstance(kernels, str | Tensor | np.ndarray)
    found: tuple[Any, ...] = tuple(kernels) if several else ()
    if not found or not all(hasattr(kernel, "operator") for kernel in found):
        kind = ValueError if several and not found else TypeError
        raise kind(
            f"kernels={shown(kernels)}; expected a kernel or a sequence of kernels, such as [Bilateral()]."
        )
    return tuple(kernel if _is_ours(kernel) else Foreign(kernel) for kernel in found)


def _is_ours(kernel: Any) -> bool:
    """True if ``features`` and not a user's ``operator`` defines the kernel."""
    return isinstance(kernel, Kernel) and type(kernel).operator in (Kernel.operator, Gaussian.operator)


def _gaussian(kernel: Kernel, domain: Domain, normalization: Normalization) -> Operator:
    """The operator of a kernel over its features, with the method that it names or "auto" chooses."""
    features, method = kernel.features(domain), kernel.method
    if method == "auto":
        few = domain.grid is None and features.shape[-2] <= most_exact(features.shape[-1])
        method = "exact" if few else "lattice"
    K = gaussian(features, method, normalization)
    if domain.grid is None and isinstance(K, Lattice) and (error := K.sampled_error) is not None:
        signed = signed_error(features, K, normalization)
        if max(error, signed) > MOST_ERROR:
            warn_caller(
                f"the lattice over {features.shape[-2]} points with {features.shape[-1]} features is off by "
                f"{100 * error:.0f} % in a sample of row sums, and by {100 * signed:.0f} % for values of "
                f"random sign; expected at most {100 * MOST_ERROR:.0f} %. "
                "method='exact' has no error, in time that grows with the square of the number of points; "
                "larger bandwidths or fewer features make the lattice more accurate."
            )
    return K


def most_exact(num_features: int) -> int:
    """The number of points with so many features up to which the method "auto" is exact."""
    few = FEW_POINTS * (num_features + 1)
    return max(few, SOME_POINTS) if num_features >= MANY_FEATURES else few


def gaussian(features: Tensor, method: str, normalization: Normalization) -> Operator:
    """The operator of a Gaussian over features in standard deviations."""
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
    check_normalization(normalization)
    operator: Operator = Lattice.build(features)
    if normalization == "none":
        # The other modes divide by the row sums, and need no correction of them.
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
    order = index.new_empty(0)  # only the diagonal reads it, which is known
    return Lattice(
        index, splat, slice, order, neighbors, shift,
        identity=lattice_shape(features.shape[-1]).identity, engine=engine, _minus=[shift - diagonal],
    )  # fmt: skip


def _root(precision: float | Sequence[float] | Tensor, features: Tensor) -> Tensor:
    """A matrix R with R R' = precision."""
    d = features.shape[-1]
    matrix = reals(precision, "precision", features.dtype).to(features)
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
            f"precision={shown(precision)} is not symmetric positive definite; expected a positive number, "
            "one per feature or a matrix. For a covariance C pass torch.linalg.inv(C)."
        )
    return root
