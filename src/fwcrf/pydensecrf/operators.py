"""pydensecrf's model as an energy of this library, in torch: for other solvers and divergences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Diagonal, Full, Potts
from fwcrf.energy import Energy, inner, linear
from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model as Engine
from fwcrf.kernels import Lattice
from fwcrf.kernels.operator import Operator
from fwcrf.pairwise import Kronecker, Pairwise
from fwcrf.pydensecrf.kernel import Kernel
from fwcrf.solvers import Solver, minimize
from fwcrf.torch_ops.native import kept_property
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import softmax


def energy(terms: Sequence[tuple[Kernel, np.ndarray | None]], unary: np.ndarray) -> Energy:
    """The energy with terms K (x) -I, or K (x) M for a vector or a matrix M, and energies ``(n, labels)``."""
    labels = unary.shape[1]
    attractions = [(_lattice(K), K.weight) for K, M in terms if M is None]
    others = [Kronecker(_lattice(K), _compatibility(K.weight, M), labels) for K, M in terms if M is not None]
    return Energy(Model(attractions, labels, others), torch.from_numpy(unary))


def bounded(unary: np.ndarray) -> np.ndarray:
    """The energies as ``Energy`` stores them. Raises its errors."""
    return Energy(Model((), unary.shape[1]), torch.from_numpy(unary)).unary.numpy()


def marginals(E: Energy, solver: str | Solver, steps: int) -> np.ndarray:
    """The point of any solver, ``(n, labels)``."""
    with torch.no_grad():
        return minimize(E, solver, num_steps=steps).probabilities.contiguous().numpy()


def mean_field_step(E: Energy, x: np.ndarray) -> None:
    """One step of mean field, in the memory of x."""
    point = torch.from_numpy(x)
    point.copy_(softmax(E.grad(point), -1.0))


def divergence(E: Energy, point: np.ndarray) -> float:
    """<x, log x> + <u, x> + <x, P x>."""
    x = torch.from_numpy(point)
    negative_entropy = torch.xlogy(x, x).sum(dtype=torch.float64)
    return float(negative_entropy + linear(E.unary, x) + inner(x, E.pairwise(x)))


def _lattice(kernel: Kernel) -> Lattice:
    index, splat, slice, order, neighbors = map(torch.from_numpy, kernel[:5])
    return Lattice(index, splat, slice, order, neighbors, blur="forward")


def _compatibility(weight: float, matrix: np.ndarray) -> Compatibility:
    M = torch.from_numpy(np.float32(weight) * matrix)
    return Diagonal(M) if M.dim() == 1 else Full(M)


@dataclass(frozen=True)
class Model(Pairwise):
    """P = sum_c w_c K_c (x) I, plus terms K (x) M: a negative w_c rewards neighbours with the same label.

    Potts with weight w is -w K (x) I, up to a constant per pixel.
    """

    attractions: Sequence[tuple[Lattice, float]]
    num_labels: int
    others: Sequence[Kronecker] = ()  # with a vector or a matrix over the labels

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for K, weight in self.attractions:
            total.add_(K(x), alpha=weight)
        for other in self.others:
            total += other(x)
        return total

    def engine(self) -> Engine | Refusal:
        return self._engine

    @kept_property
    def _engine(self) -> Engine | Refusal:
        """P with Potts terms of weight -w_c: the same up to a number per pixel, which changes no step."""
        terms: list[tuple[Operator, Compatibility]] = []
        for K, weight in self.attractions:
            terms.append((K, Potts(torch.tensor(-weight, dtype=torch.float32, device="cpu"))))
        terms += [(other.operator, other.compat) for other in self.others]
        return Engine.of(terms)

    def to_dense(self) -> Tensor:
        eye = torch.eye(self.num_labels, dtype=torch.float32, device="cpu")
        same = [weight * torch.kron(K.to_dense(), eye) for K, weight in self.attractions]
        return torch.stack([*same, *(other.to_dense() for other in self.others)]).sum(0)

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        total = torch.zeros(num_labels, dtype=torch.float32, device="cpu")
        for K, weight in self.attractions:
            total = total + (weight * K.row_sums()).abs().unsqueeze(-1)
        for other in self.others:
            total = total + other.absolute_row_sums(num_labels)
        return total
