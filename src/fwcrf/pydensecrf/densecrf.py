"""``DenseCRF`` and ``DenseCRF2D`` with pydensecrf's methods, arguments and results.

A model is E(x) = <x, P x> / 2 + <u, x> as everywhere here, with P as pydensecrf has it: self-edges kept, and
a compatibility that is -w I for a number w, but +M for a vector or a matrix.

Mean field runs in numpy and the native core. torch takes longer to import than an image to refine, and is
imported only for ``energy``, other solvers, divergences, and energies near the end of the float range.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np

from fwcrf.magnitudes import ENERGY, WEIGHT, refuse_weight
from fwcrf.pydensecrf.arguments import array, bandwidths, buffer, float_array, integer, real
from fwcrf.pydensecrf.eigen import MatrixXf, wrap
from fwcrf.pydensecrf.kernel import Kernel, position_kernel, positions
from fwcrf.pydensecrf.kernel import kernel as make_kernel
from fwcrf.pydensecrf.mean_field import MeanField, start
from fwcrf.runtime import with_memory_errors

if TYPE_CHECKING:
    from typing_extensions import Self

    from fwcrf.energy import Energy
    from fwcrf.solvers import Solver


class KernelType(IntEnum):
    """The parameters of a kernel that pydensecrf's C++ can learn; from Python, all types are the same."""

    CONST_KERNEL = 0
    DIAG_KERNEL = 1
    FULL_KERNEL = 2


class NormalizationType(IntEnum):
    """Normalization of a kernel K by its row sums D: K, K D^-1, D^-1 K, or D^-1/2 K D^-1/2."""

    NO_NORMALIZATION = 0
    NORMALIZE_BEFORE = 1
    NORMALIZE_AFTER = 2
    NORMALIZE_SYMMETRIC = 3


CONST_KERNEL = KernelType.CONST_KERNEL
DIAG_KERNEL = KernelType.DIAG_KERNEL
FULL_KERNEL = KernelType.FULL_KERNEL
NO_NORMALIZATION = NormalizationType.NO_NORMALIZATION
NORMALIZE_BEFORE = NormalizationType.NORMALIZE_BEFORE
NORMALIZE_AFTER = NormalizationType.NORMALIZE_AFTER
NORMALIZE_SYMMETRIC = NormalizationType.NORMALIZE_SYMMETRIC


class Unary:
    """Energies for ``DenseCRF.setUnary``: a ``ConstUnary`` or a ``LogisticUnary``."""

    def _energies(self) -> np.ndarray:
        raise TypeError("a Unary has no energies of its own; expected a ConstUnary or a LogisticUnary.")


class ConstUnary(Unary):
    """Energies as they are, ``(labels, n)``."""

    def __init__(self, u: np.ndarray) -> None:
        self._u = float_array(u, "u", 2).copy()

    def _energies(self) -> np.ndarray:
        return self._u


class LogisticUnary(Unary):
    """Energies ``L @ f``, linear in features ``f``, ``(k, n)``, with ``L`` of shape ``(labels, k)``."""

    def __init__(self, L: np.ndarray, f: np.ndarray) -> None:
        L, f = float_array(L, "L", 2), float_array(f, "f", 2)
        if L.shape[1] != f.shape[0]:
            raise ValueError(f"L has shape {L.shape} and f {f.shape}; expected (labels, k) and (k, n).")
        self._u = L @ f

    def _energies(self) -> np.ndarray:
        return self._u


class DenseCRF:
    """A dense CRF over ``nvar`` points of any kind with ``nlabels`` labels.

    >>> crf = DenseCRF(4, 2)
    >>> crf.setUnaryEnergy(np.array([[0, 1, 0, 0], [1, 0, 1, 1]], dtype=np.float32))
    >>> crf.addPairwiseEnergy(np.zeros((1, 4), dtype=np.float32), compat=3)
    >>> np.argmax(crf.inference(5), axis=0)
    array([0, 0, 0, 0])
    """

    _nvar: int
    _nlabels: int
    _unary: np.ndarray  # (n, L)
    _attractions: list[Kernel]  # K (x) -I, weights included
    _others: list[tuple[Kernel, np.ndarray]]  # K (x) M with a vector or a matrix over the labels
    # Made of these when needed.
    _energy: Energy | None
    _mean_field: MeanField | None

    # Not __init__, which subclasses written for pydensecrf need not call.
    @with_memory_errors
    def __new__(cls, nvar: int, nlabels: int, *_: object, **__: object) -> Self:
        self = super().__new__(cls)
        self._nvar = integer(nvar, "nvar", 1)
        self._nlabels = integer(nlabels, "nlabels", 1)
        self._unary = np.zeros((self._nvar, self._nlabels), np.float32)
        self._attractions = []
        self._others = []
        self._forget()
        return self

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getnewargs__(self) -> tuple[int, ...]:
        return self._nvar, self._nlabels

    def __getstate__(self) -> dict[str, Any]:
        # Lists of their own: a kernel that a copy adds is not the original's.
        own = {"_attractions": [*self._attractions], "_others": [*self._others]}
        return {**self.__dict__, **own, "_energy": None, "_mean_field": None}

    def _forget(self) -> None:
        self._energy = self._mean_field = None

    @with_memory_errors
    def setUnaryEnergy(self, u: np.ndarray, f: np.ndarray | None = None) -> None:
        """Set the energies, such as -log of probabilities: ``(labels, n)`` in float32.

        With ``f`` they are ``u @ f``, as in ``LogisticUnary``.
        """
        self._set(float_array(u, "u", 2) if f is None else LogisticUnary(u, f)._energies())

    @with_memory_errors
    def setUnary(self, u: Unary) -> None:
        """Set the energies of a ``ConstUnary`` or a ``LogisticUnary``."""
        if not isinstance(u, Unary):
            raise TypeError(
                f"Argument 'u' has incorrect type (expected Unary, got {type(u).__name__}): "
                "setUnaryEnergy takes an array."
            )
        self._set(u._energies())

    def _set(self, energies: np.ndarray) -> None:
        need = (self._nlabels, self._nvar)
        if energies.shape != need:
            raise ValueError(
                f"Bad shape for unary energy (Need {need}, got {energies.shape}): labels come first, and an "
                "array (labels, H, W) is reshaped to (labels, H * W)."
            )
        self._unary = _bounded(np.array(energies.T, order="C"))
        self._forget()

    @with_memory_errors
    def addPairwiseEnergy(
        self,
        features: np.ndarray,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add a Gaussian kernel over features in standard deviations, ``(d, n)`` in float32.

        ``compat`` is a number (Potts), a vector or a matrix over the labels in float32.
        """
        features = float_array(features, "features", 2)
        if features.shape[1] != self._nvar:
            raise ValueError(
                f"features has shape {features.shape}; expected (d, {self._nvar}): one column for each "
                f"of the {self._nvar} points."
            )
        points = np.array(features.T, order="C")
        self._add(lambda *given: make_kernel(points, *given), compat, kernel, normalization)

    def _add(self, make: Callable[[int, float], Kernel], compat: Any, kind: int, normalization: int) -> None:
        """Add the kernel that ``make`` returns for a normalization and a weight."""
        integer(kind, "kernel", 0)
        mode = integer(normalization, "normalization", 0)
        if mode > NORMALIZE_SYMMETRIC:
            raise ValueError(f"normalization={normalization!r}; expected a NormalizationType.")
        if isinstance(compat, Number):
            weight = real(compat, "compat")
            if abs(weight) > WEIGHT:
                refuse_weight(weight)
            self._attractions.append(make(mode, -weight))
        else:
            M = _compatibility(compat, self._nlabels)
            if (size := float(np.abs(M).max())) > WEIGHT:
                refuse_weight(size)
            self._others.append((make(mode, 1.0), M))
        self._forget()

    def _terms(self) -> list[tuple[Kernel, np.ndarray | None]]:
        return [*((K, None) for K in self._attractions), *self._others]

    def _steps(self) -> MeanField | None:
        """Native mean field; None if the engine does not take the model."""
        if self._mean_field is None:
            terms = [(K, np.diag(M) if M is not None and M.ndim == 1 else M) for K, M in self._terms()]
            self._mean_field = MeanField.of(terms, self._nlabels)
        return self._mean_field

    def energy(self) -> Energy:
        """The energy of the model, for ``fwcrf.minimize`` for example: x is ``(n, labels)``."""
        if self._energy is None:
            from fwcrf.pydensecrf import operators

            self._energy = operators.energy(self._terms(), self._unary)
        return self._energy

    @with_memory_errors
    def inference(self, niter: int, *, solver: str | Solver = "mf") -> MatrixXf:
        """Marginals after ``niter`` steps of mean field, ``(labels, n)``; or of another solver.

        ``solver`` is a name of ``fwcrf.solvers.names()`` or a solver of ``fwcrf.solvers.get``.
        """
        steps = max(0, integer(niter, "niter", -(2**31)))
        native = self._steps() if isinstance(solver, str) and solver == "mf" else None
        if native is not None:
            return wrap(native.run(self._unary, steps).T)
        from fwcrf.pydensecrf import operators

        return wrap(operators.marginals(self.energy(), solver, steps).T)

    @with_memory_errors
    def startInference(self) -> tuple[MatrixXf, MatrixXf, MatrixXf]:
        """The start of mean field, and two matrices that ``stepInference`` takes but does not need."""
        return wrap(start(self._unary).T), MatrixXf(), MatrixXf()

    @with_memory_errors
    def stepInference(self, Q: MatrixXf, tmp1: MatrixXf, tmp2: MatrixXf) -> None:
        """Take one step of mean field, in the memory of ``Q``."""
        for name, matrix in (("Q", Q), ("tmp1", tmp1), ("tmp2", tmp2)):
            _check_matrix(matrix, name)
        x, native = self._point(Q), self._steps()
        if native is not None:
            return native.step(x, self._unary)
        from fwcrf.pydensecrf import operators

        operators.mean_field_step(self.energy(), x)

    @with_memory_errors
    def klDivergence(self, Q: MatrixXf) -> float:
        """<Q, log Q> + <u, Q> + <Q, P Q>, as pydensecrf computes it.

        The divergence from the model, up to a constant, has half of the last term, as
        ``crf.energy().value(x)`` has it.
        """
        _check_matrix(Q, "Q")
        x = self._point(Q)
        from fwcrf.pydensecrf import operators

        return operators.divergence(self.energy(), x)

    def _point(self, Q: MatrixXf) -> np.ndarray:
        """x, ``(n, labels)``, in the memory of a matrix."""
        values = np.asarray(Q)
        if values.shape != (self._nlabels, self._nvar):
            raise ValueError(
                f"Q has shape {values.shape}; expected {(self._nlabels, self._nvar)}, as inference and "
                "startInference of the same model return it."
            )
        return values.T


class DenseCRF2D(DenseCRF):
    """A dense CRF over the pixels of an image, its width before its height.

    >>> crf = DenseCRF2D(3, 2, 2)
    >>> crf.addPairwiseBilateral(sxy=3, srgb=10, rgbim=np.zeros((2, 3, 3), dtype=np.uint8), compat=3)
    """

    _w: int
    _h: int

    def __new__(cls, w: int, h: int, nlabels: int, *_: object, **__: object) -> Self:
        w, h = integer(w, "w", 1), integer(h, "h", 1)
        self = super().__new__(cls, w * h, nlabels)
        self._w, self._h = w, h
        return self

    def __getnewargs__(self) -> tuple[int, ...]:
        return self._w, self._h, self._nlabels

    @with_memory_errors
    def addPairwiseGaussian(
        self, sxy: Any, compat: Any, kernel: int = DIAG_KERNEL, normalization: int = NORMALIZE_SYMMETRIC
    ) -> None:
        """Add a Gaussian kernel over positions; ``sxy`` is in pixels, one number or one each for x and y."""
        size, (sx, sy) = (self._w, self._h), bandwidths(sxy, "sxy", 2)
        self._add(lambda *given: position_kernel(size, (sx, sy), *given), compat, kernel, normalization)

    @with_memory_errors
    def addPairwiseBilateral(
        self,
        sxy: Any,
        srgb: Any,
        rgbim: np.ndarray,
        compat: Any,
        kernel: int = DIAG_KERNEL,
        normalization: int = NORMALIZE_SYMMETRIC,
    ) -> None:
        """Add a Gaussian kernel over positions and colours of a uint8 image ``(h, w, 3)``."""
        image = array(rgbim, "rgbim", np.uint8, 3)
        if image.shape[2] != 3:
            raise ValueError(
                f"addPairwiseBilateral only works for RGB images, and rgbim has shape {image.shape}. For "
                "other images, pass features of utils.create_pairwise_bilateral to addPairwiseEnergy."
            )
        need = (self._h, self._w, 3)
        if image.shape != need:
            raise ValueError(
                f"Bad shape for pairwise bilateral (Need {need}, got {image.shape}): the width comes first "
                "in DenseCRF2D(w, h, nlabels), the height in an image."
            )
        sx, sy = bandwidths(sxy, "sxy", 2)
        features = positions((self._w, self._h), (sx, sy), 5)
        for channel, s in enumerate(bandwidths(srgb, "srgb", 3)):
            np.divide(image[..., channel], np.float32(s), out=features[..., 2 + channel])
        points = features.reshape(-1, 5)
        self._add(lambda *given: make_kernel(points, *given), compat, kernel, normalization)


def _bounded(unary: np.ndarray) -> np.ndarray:
    """The energies ``(n, labels)`` as an ``Energy`` stores them; raises its errors, for NaN for example."""
    low, high = unary.min(), unary.max()
    if low >= -ENERGY and high <= ENERGY:
        return unary
    # +inf forbids a label, if its pixel has another label.
    if low >= -ENERGY and high == np.inf and unary.min(1).max() <= ENERGY:
        finite = unary.max(where=unary < np.inf, initial=0)
        if finite <= ENERGY:
            return unary
    from fwcrf.pydensecrf import operators

    return operators.bounded(unary)


def _compatibility(value: Any, num_labels: int) -> np.ndarray:
    """A vector as a diagonal, or a matrix, symmetrised: added to the energy as they are."""
    found = buffer(value, "compat")
    if found.ndim not in (1, 2):
        raise ValueError(
            f"LabelCompatibility of dimension >2 not meaningful: compat has shape {found.shape}; expected a "
            "number, a vector or a matrix over the labels."
        )
    found = float_array(value, "compat", found.ndim)
    if found.shape != (num_labels,) * found.ndim:
        raise ValueError(
            f"compat has shape {found.shape}; expected a number, {num_labels} numbers or a "
            f"{num_labels} x {num_labels} matrix for {num_labels} labels."
        )
    if not np.isfinite(found).all():
        raise ValueError("compat has NaN or infinite entries; expected finite numbers.")
    # (M + M') / 2, which does not overflow.
    return found.copy() if found.ndim == 1 else np.float32(0.5) * found + np.float32(0.5) * found.T


def _check_matrix(value: Any, name: str) -> None:
    if not isinstance(value, MatrixXf):
        raise TypeError(
            f"Argument '{name}' has incorrect type (expected MatrixXf, got {type(value).__name__}): "
            "inference and startInference return one, and eigen.matrixXf makes one of an array."
        )
