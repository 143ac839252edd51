"""``DenseCRF`` and ``DenseCRF2D`` with pydensecrf's methods, arguments and results.

A model is E(x) = <x, P x> / 2 + <u, x> as everywhere here, with P as pydensecrf has it: self-edges kept, and
a compatibility that is -w I for a number w, but +M for a vector or a matrix.
"""

from __future__ import annotations

from enum import IntEnum
from numbers import Number
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Diagonal, Full, symmetric
from fwcrf.energy import Energy, inner, linear
from fwcrf.kernels import Lattice, Normalization
from fwcrf.pairwise import Kronecker, largest
from fwcrf.pydensecrf.arguments import array, bandwidths, buffer, float_array, integer, real
from fwcrf.pydensecrf.eigen import MatrixXf, wrap
from fwcrf.pydensecrf.operators import Model, kernel
from fwcrf.solvers import Solver, get, minimize
from fwcrf.solvers.plan import Plan, plan
from fwcrf.torch_ops.magnitudes import WEIGHT, refuse_weight
from fwcrf.torch_ops.native import with_memory_errors
from fwcrf.torch_ops.simplex import softmax

if TYPE_CHECKING:
    from typing_extensions import Self


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

_MODES: dict[int, Normalization] = {
    NO_NORMALIZATION: "none",
    NORMALIZE_BEFORE: "before",
    NORMALIZE_AFTER: "after",
    NORMALIZE_SYMMETRIC: "symmetric",
}


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
    _unary: Tensor  # (n, L)
    _attractions: list[Lattice]
    _others: list[Kronecker]
    _energy: Energy | None

    # Not __init__, which subclasses written for pydensecrf need not call.
    @with_memory_errors
    def __new__(cls, nvar: int, nlabels: int, *_: object, **__: object) -> Self:
        self = super().__new__(cls)
        self._nvar = integer(nvar, "nvar", 1)
        self._nlabels = integer(nlabels, "nlabels", 1)
        self._unary = torch.zeros(self._nvar, self._nlabels, dtype=torch.float32, device="cpu")
        self._attractions = []
        self._others = []
        self._energy = None
        return self

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __getnewargs__(self) -> tuple[int, ...]:
        return self._nvar, self._nlabels

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
        unary = torch.from_numpy(np.array(energies.T, order="C"))
        Energy(Model((), self._nlabels), unary)  # raises an error for NaN here, where it enters
        self._unary = unary
        self._energy = None

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
        self._add(torch.from_numpy(np.array(features.T, order="C")), compat, kernel, normalization)

    def _add(self, features: Tensor, compat: Any, kind: int, normalization: int) -> None:
        integer(kind, "kernel", 0)
        mode = _MODES.get(integer(normalization, "normalization", 0))
        if mode is None:
            raise ValueError(f"normalization={normalization!r}; expected a NormalizationType.")
        if isinstance(compat, Number):
            weight = real(compat, "compat")
            if abs(weight) > WEIGHT:
                refuse_weight(weight)
            self._attractions.append(kernel(features, mode, -weight))
        else:
            M = _compatibility(compat, self._nlabels)
            size = largest(M.matrix(self._nlabels))
            self._others.append(Kronecker(kernel(features, mode), M, self._nlabels, magnitude=size))
            self._others[-1].check(self._unary)
        self._energy = None

    def energy(self) -> Energy:
        """The energy of the model, for ``fwcrf.minimize`` for example: x is ``(n, labels)``."""
        if self._energy is None:
            pairwise = Model(tuple(self._attractions), self._nlabels, tuple(self._others))
            self._energy = Energy(pairwise, self._unary)
        return self._energy

    @with_memory_errors
    def inference(self, niter: int, *, solver: str | Solver = "mf") -> MatrixXf:
        """Marginals after ``niter`` steps of mean field, ``(labels, n)``; or of another solver.

        ``solver`` is a name of ``fwcrf.solvers.names()`` or a solver of ``fwcrf.solvers.get``.
        """
        steps = max(0, integer(niter, "niter", -(2**31)))
        with torch.no_grad():
            x = minimize(self.energy(), solver, num_steps=steps).probabilities
        return wrap(x.contiguous().numpy().T)

    @with_memory_errors
    def startInference(self) -> tuple[MatrixXf, MatrixXf, MatrixXf]:
        """The start of mean field, and two matrices that ``stepInference`` takes but does not need."""
        return wrap(softmax(self._unary, -1.0).numpy().T), MatrixXf(), MatrixXf()

    @with_memory_errors
    def stepInference(self, Q: MatrixXf, tmp1: MatrixXf, tmp2: MatrixXf) -> None:
        """Take one step of mean field, in the memory of ``Q``."""
        for name, matrix in (("Q", Q), ("tmp1", tmp1), ("tmp2", tmp2)):
            _check_matrix(matrix, name)
        x, E = self._point(Q), self.energy()
        found = plan(E, get("mf"), x, 1)
        x.copy_(found.run(x, E.unary) if isinstance(found, Plan) else softmax(E.grad(x), -1.0))

    @with_memory_errors
    def klDivergence(self, Q: MatrixXf) -> float:
        """<Q, log Q> + <u, Q> + <Q, P Q>, as pydensecrf computes it.

        The divergence from the model, up to a constant, has half of the last term, as
        ``crf.energy().value(x)`` has it.
        """
        _check_matrix(Q, "Q")
        x, E = self._point(Q), self.energy()
        negative_entropy = torch.xlogy(x, x).sum(dtype=torch.float64)
        return float(negative_entropy + linear(E.unary, x) + inner(x, E.pairwise(x)))

    def _point(self, Q: MatrixXf) -> Tensor:
        """x, ``(n, labels)``, in the memory of a matrix."""
        values = np.asarray(Q)
        if values.shape != (self._nlabels, self._nvar):
            raise ValueError(
                f"Q has shape {values.shape}; expected {(self._nlabels, self._nvar)}, as inference and "
                "startInference of the same model return it."
            )
        return torch.from_numpy(values.T)


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
        features = self._features(sxy, 2)
        self._add(features.flatten(0, 1), compat, kernel, normalization)

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
        features = self._features(sxy, 5)
        scale = features.new_tensor(bandwidths(srgb, "srgb", 3))
        torch.div(torch.tensor(image, dtype=torch.uint8, device="cpu"), scale, out=features[..., 2:])
        self._add(features.flatten(0, 1), compat, kernel, normalization)

    def _features(self, sxy: Any, count: int) -> Tensor:
        """``count`` features per pixel, ``(h, w, count)``: first x and y, the rest uninitialised."""
        sx, sy = bandwidths(sxy, "sxy", 2)
        features = torch.empty(self._h, self._w, count, dtype=torch.float32, device="cpu")
        x, y = (torch.arange(size, dtype=torch.float32, device="cpu") for size in (self._w, self._h))
        features[..., 0] = x / sx
        features[..., 1] = (y / sy).unsqueeze(-1)
        return features


def _compatibility(value: Any, num_labels: int) -> Compatibility:
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
    M = torch.tensor(found, dtype=torch.float32, device="cpu")
    return Diagonal(M) if M.dim() == 1 else Full(symmetric(M))


def _check_matrix(value: Any, name: str) -> None:
    if not isinstance(value, MatrixXf):
        raise TypeError(
            f"Argument '{name}' has incorrect type (expected MatrixXf, got {type(value).__name__}): "
            "inference and startInference return one, and eigen.matrixXf makes one of an array."
        )
