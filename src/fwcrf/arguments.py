"""The keyword arguments of ``refine`` and ``refine_points`` for type checkers, once for all overloads.

The functions document them. ``return_probabilities`` is not here: it decides the type of the result. A test
compares names and types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypedDict, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from fwcrf.compatibility import Compatibility
from fwcrf.frames import Frames
from fwcrf.inputs.resample import Align
from fwcrf.kernels.kernel import Kernel
from fwcrf.presets import Preset
from fwcrf.rounding import Rounding
from fwcrf.solvers import Solver

# The type of the scores, which is that of the labels too.
Array = TypeVar("Array", NDArray[Any], Tensor)


class Sliced(Protocol):
    """An array on disk, such as of Zarr or HDF5: a shape, a dtype and slices."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class Convertible(Protocol):
    """An object that numpy reads without a copy, such as an image of Pillow."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


ImageLike = NDArray[Any] | Tensor | Sliced | Convertible


class PointArguments(TypedDict, total=False):
    """Keyword arguments of ``refine_points``."""

    solver: str | Solver
    num_steps: int
    tol: float | None
    kernels: Sequence[Kernel] | None
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility]
    from_logits: bool
    from_labels: bool | float | None
    num_labels: int | None
    rounding: str | Rounding
    keep: Any
    ignore: Any
    scribbles: Any
    segments: Any
    self_edges: bool


class ImageArguments(PointArguments, total=False):
    """Keyword arguments of ``refine``."""

    preset: str | Preset | None
    balance: float
    channel_axis: int | None
    spatial_dims: int | None
    spacing: float | Sequence[float] | None
    resize: Literal["scores", "image"] | None
    align: Align
    tile: int | Sequence[int] | Literal[False] | None
    overlap: int | Sequence[int] | None
    memory: int | None
    out: Any
    progress: Callable[[int, int], None] | None
    frames: Frames | None
