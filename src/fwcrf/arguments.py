"""The keyword arguments of ``refine`` and ``refine_points`` for type checkers, once for all overloads.

The functions document them. ``return_probabilities`` is not here: it decides the type of the result. A test
compares names and types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from fwcrf.compatibility import Compatibility
from fwcrf.inputs.resample import Align
from fwcrf.kernels.kernel import Kernel
from fwcrf.presets import Preset
from fwcrf.rounding import Rounding
from fwcrf.solvers import Solver

# The type of the scores, which is that of the labels too.
Array = TypeVar("Array", NDArray[Any], Tensor)


class PointArguments(TypedDict, total=False):
    """Keyword arguments of ``refine_points``."""

    solver: str | Solver
    num_steps: int
    kernels: Sequence[Kernel] | None
    compatibility: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility]
    from_logits: bool
    from_labels: bool | float | None
    num_labels: int | None
    rounding: str | Rounding
    keep: Any
    ignore: Any
    scribbles: Any
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
