"""One line of text for objects that hold arrays, of which torch and numpy would print hundreds of numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from fwcrf.torch_ops.native import has_values

# Arrays of more entries are printed by their shape, lists of more objects by their length.
_MOST_ENTRIES = 4
_MOST_OBJECTS = 2
_MOST_CHARACTERS = 80
_MOST_LEVELS = 2


def in_one_line(self: object) -> str:
    """The ``__repr__`` of a dataclass or a NamedTuple: arrays by dtype and shape, inner objects by name.

    It is assigned in the body of the class (``__repr__ = in_one_line``), where ``dataclass`` leaves it alone.

    >>> import torch
    >>> from typing import NamedTuple
    >>> class Pair(NamedTuple):
    ...     scores: Tensor
    ...     weight: Tensor
    ...     __repr__ = in_one_line
    >>> Pair(torch.zeros(40, 60, 21), torch.tensor(0.5))
    Pair(scores=float32 (40, 60, 21), weight=0.5)
    """
    return with_attributes(self, _fields(self))


def with_attributes(value: object, names: Iterable[str], level: int = 0) -> str:
    """The name of the type and the named attributes, in one line."""
    parts = (f"{name}={shortly(getattr(value, name), level + 1)}" for name in names)
    return f"{type(value).__name__}({', '.join(parts)})"


def shortly(value: Any, level: int = 0) -> str:
    """A value in one line, its inner objects down to the second level.

    >>> import torch
    >>> shortly([torch.zeros(9, 2), torch.tensor([1.0, 2.5])])
    '[float32 (9, 2), [1, 2.5]]'
    >>> shortly((1, 2, 3, 4, 5, 6)), shortly([torch.zeros(9, 2)] * 50)
    ('(1, 2, 3, 4, 5, 6)', '50 of Tensor')
    """
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, np.ndarray | np.generic):
        return _numbers(value.tolist()) if value.size <= _MOST_ENTRIES else f"{value.dtype} {value.shape}"
    if type(value) in (list, tuple):
        return _listed(value, level)
    if type(value).__repr__ is in_one_line:
        inside = level < _MOST_LEVELS
        return with_attributes(value, _fields(value), level) if inside else f"{type(value).__name__}(...)"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def _fields(value: Any) -> Iterable[str]:
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value) if field.repr]
    return value._fields


def _listed(values: list[Any] | tuple[Any, ...], level: int) -> str:
    """The entries; for many objects, or more numbers than fit, their count and types."""
    plain = all(isinstance(one, int | float | str | None) for one in values)
    if plain and len(str(values)) <= _MOST_CHARACTERS:
        return str(values)
    if plain or len(values) > _MOST_OBJECTS:
        return f"{len(values)} of {' and '.join(sorted({type(one).__name__ for one in values}))}"
    inner = ", ".join(shortly(one, level + 1) for one in values)
    return f"[{inner}]" if type(values) is list else f"({inner})"


def _tensor(x: Tensor) -> str:
    if x.numel() <= _MOST_ENTRIES and has_values(x):
        return _numbers(x.tolist())
    where = "" if x.device.type == "cpu" else f" on {x.device}"
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}{where}"


def _numbers(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_numbers, values))}]"
    return f"{values:.6g}" if isinstance(values, float) else str(values)
