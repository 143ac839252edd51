"""One step of a solver as the engine takes it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from torch import Tensor

from fwcrf.torch_ops.printed import in_one_line


class Map(IntEnum):
    """Maps of rows, in the order of the native core; VERTEX is the vertex of the largest entry."""

    NONE = 0
    SOFTMAX = 1
    PROJECT = 2
    VERTEX = 3
    SOFTMAX_DERIVATIVE = 4
    PROJECT_DERIVATIVE = 5


class Dual(IntEnum):
    """Rules for the dual variable w, in the order of the native core.

    LOGITS start as log x and become v, up to a constant per row. MULTIPLIERS start as 0 and become w + x - p.
    The GRADIENT of a backward pass becomes v.
    """

    NONE = 0
    LOGITS = 1
    MULTIPLIERS = 2
    GRADIENT = 3


class Update(NamedTuple):
    """x <- x + step (p - x) with p = map(v) and v = scale (P x + unary u) + keep x + lean w, row by row.

    w is the dual variable of solvers that have one. A derivative is step times the map's derivative times v.
    The native core reads the fields in this order.
    """

    map: Map
    scale: float = 1.0
    keep: float = 0.0
    step: float = 1.0
    unary: float = 1.0
    lean: float = 0.0
    dual: Dual = Dual.NONE


@dataclass(frozen=True, eq=False)
class Scheduled(Sequence[Update]):
    """make(a) for each number a of an array, made when it is read."""

    make: Callable[[float], Update]
    numbers: array[float]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, k: Any) -> Any:
        return list(map(self.make, self.numbers[k])) if isinstance(k, slice) else self.make(self.numbers[k])


# P x + u itself.
APPLY = Update(Map.NONE)
DERIVATIVE = {Map.SOFTMAX: Map.SOFTMAX_DERIVATIVE, Map.PROJECT: Map.PROJECT_DERIVATIVE}


class Start(NamedTuple):
    """Optional first operation: out = map(scale x), or step times the derivative at ``other`` times scale x.

    With a derivative, scale x is also the dual variable of the first update.
    """

    map: Map
    scale: float
    other: Tensor | None
    out: Tensor
    step: float = 1.0

    __repr__ = in_one_line
