"""pydensecrf's matrix and vector types: float32 memory that numpy reads without a copy.

``np.array(Q)`` is a copy. ``np.asarray(Q)`` is a view: ``stepInference`` reads changes made to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fwcrf import _core
from fwcrf.pydensecrf.arguments import float_array

if TYPE_CHECKING:
    from typing_extensions import Self


class _Values(_core.Exporter):
    """float32 memory with numpy's array interface, and the buffer of ``_values`` for ``memoryview``."""

    __slots__ = ("_values",)
    _values: np.ndarray
    _dimensions = 0

    def __new__(cls, *_: object, **__: object) -> Self:
        self = super().__new__(cls)
        self._values = np.empty((0,) * cls._dimensions, np.float32)
        return self

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._values.__array_interface__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of shape {self._values.shape}; np.array() converts it>"


class MatrixXf(_Values):
    """A matrix ``(rows, columns)`` with contiguous columns. ``MatrixXf()`` is empty; use ``matrixXf``.

    >>> Q = matrixXf(np.eye(2, 3, dtype=np.float32))
    >>> np.argmax(Q, axis=0)
    array([0, 1, 0])
    """

    __slots__ = ()
    _dimensions = 2


class VectorXf(_Values):
    """A vector. ``VectorXf()`` is empty; use ``vectorXf``."""

    __slots__ = ()
    _dimensions = 1


def wrap(values: np.ndarray) -> MatrixXf:
    """A matrix that shares the memory of a float32 array."""
    matrix = MatrixXf()
    matrix._values = values
    return matrix


def matrixXf(arr: np.ndarray) -> MatrixXf:
    """A matrix with a copy of a two-dimensional float32 array."""
    return wrap(np.array(float_array(arr, "arr", 2), order="F"))


def vectorXf(arr: np.ndarray) -> VectorXf:
    """A vector with a copy of a one-dimensional float32 array."""
    vector = VectorXf()
    vector._values = float_array(arr, "arr", 1).copy()
    return vector
