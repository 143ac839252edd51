"""P, the pairwise part of the energy: a symmetric operator on ``(*batch, n, L)``.

A dense model is a sum of terms (K - diag) (x) M, one per kernel. Any subclass of ``Pairwise`` with
``__call__`` and ``to_dense`` can take its place, for example a sparse graph. Solvers that split the energy
also call ``absolute_row_sums`` and ``self_edges``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, compatibility
from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model
from fwcrf.kernels.kernel import Domain, Kernel, Weight, read_kernels
from fwcrf.kernels.operator import Operator
from fwcrf.torch_ops.native import has_values


def inner(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> per image, ``(*batch,)``, in float64."""
    return (a * b).sum((-2, -1), dtype=torch.float64)


class SelfEdges(NamedTuple):
    """diag(weight) (x) matrix: the edges from each node to itself."""

    weight: Tensor  # (*batch, n)
    matrix: Tensor  # (L, L)


class Pairwise(ABC):
    """P on ``(*batch, n, L)``, symmetric; closed under + and multiplication by a number."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """P x."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """The matrix, ``(*batch, n L, n L)``: for tests and small problems."""

    def plus(self, x: Tensor, unary: Tensor) -> Tensor:
        """P x + u."""
        return self(x) + unary

    def check(self, x: Tensor) -> None:
        """Refuse points with another number of labels than P has."""
        return None

    def engine(self) -> Model | Refusal:
        """The native model of P, or the reason why there is none."""
        return Refusal(f"{type(self).__name__} is applied one step at a time")

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        """sum_jt |P_is,jt|, or an upper bound on it, ``(*batch, n, L)``.

        From the dense matrix; subclasses for large problems override it.
        """
        return self.to_dense().abs().sum(-1).unflatten(-1, (-1, num_labels))

    def self_edges(self) -> list[SelfEdges] | None:
        """The self-edges that were removed from P; None if they are not known."""
        return None

    def descend(
        self, unary: Tensor, x: Tensor, *, max_sweeps: int, restarts: int, seed: int
    ) -> Tensor | None:
        """Labels ``(*batch, n)`` by coordinate descent from x; None if P does not implement it."""
        return None

    def __add__(self, other: Pairwise) -> Pairwise:
        return Sum((self, other))

    def __mul__(self, factor: float | Tensor) -> Pairwise:
        return Multiple(self, factor)

    __rmul__ = __mul__


class Dense(Pairwise):
    """Sums of K (x) M, applied by the engine if it takes them, else term by term."""

    def __call__(self, x: Tensor) -> Tensor:
        model = self._model_for(x, None)
        return self._term_by_term(x) if model is None else model.apply(x, None)

    def plus(self, x: Tensor, unary: Tensor) -> Tensor:
        model = self._model_for(x, unary)
        return self._term_by_term(x) + unary if model is None else model.apply(x, unary)

    def engine(self) -> Model | Refusal:
        return Refusal("torch is tracing the code") if torch.compiler.is_compiling() else self._model

    def check(self, x: Tensor) -> None:
        for part in self._parts():
            part.check(x)

    @abstractmethod
    def _term_by_term(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def _parts(self) -> Sequence[Pairwise]: ...

    def _model_for(self, x: Tensor, unary: Tensor | None) -> Model | None:
        """The native model if it can apply P to x; else None."""
        model = self.engine()
        if isinstance(model, Refusal):
            return None
        self.check(x)
        return model if model.refuse(x, unary) is None else None

    @cached_property
    def _model(self) -> Model | Refusal:
        parts = self._parts()
        if not all(isinstance(part, Kronecker) for part in parts):
            return Refusal("a term of the sum is not a kernel with a compatibility")
        return Model.of([(part.operator, part.compat) for part in parts])  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Kronecker(Dense):
    """K (x) M: K weighs the neighbours, M penalises their labels."""

    operator: Operator
    compat: Compatibility
    num_labels: int
    with_diagonal: Operator | None = None  # K before its diagonal was removed, or K itself; None if unknown

    def _term_by_term(self, x: Tensor) -> Tensor:
        self.check(x)
        return self.compat.apply(self.operator(x))

    def _parts(self) -> Sequence[Pairwise]:
        return [self]

    def check(self, x: Tensor) -> None:
        """Refuse an x whose number of labels is not ``num_labels``."""
        if x.dim() < 2 or x.shape[-1] != self.num_labels:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected (*batch, {self.operator.n}, {self.num_labels}): "
                f"{self.num_labels} labels on the last axis."
            )

    def to_dense(self) -> Tensor:
        K = self.operator.to_dense()
        M = self.compat.matrix(self.num_labels).to(K)
        product = torch.einsum("...ij,st->...isjt", K, M)
        size = K.shape[-1] * self.num_labels
        return product.reshape(*K.shape[:-2], size, size)

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        # Gaussian kernels and their approximations have no negative entries.
        sums = self.operator.row_sums()
        return sums.unsqueeze(-1) * self.compat.matrix(num_labels).to(sums).abs().sum(-1)

    def self_edges(self) -> list[SelfEdges] | None:
        if self.with_diagonal is None:
            return None
        kept = self.with_diagonal is self.operator
        removed = self.with_diagonal.diagonal()
        removed = torch.zeros_like(removed) if kept else removed
        return [SelfEdges(removed, self.compat.matrix(self.num_labels).to(removed))]


@dataclass(frozen=True)
class Sum(Dense):
    """P_1 + P_2 + ..."""

    terms: Sequence[Pairwise]

    def _term_by_term(self, x: Tensor) -> Tensor:
        total = self.terms[0](x)
        for term in self.terms[1:]:
            total = total + term(x)
        return total

    def _parts(self) -> Sequence[Pairwise]:
        return self.terms

    def to_dense(self) -> Tensor:
        total = self.terms[0].to_dense()
        for term in self.terms[1:]:
            total = total + term.to_dense()
        return total

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        total = self.terms[0].absolute_row_sums(num_labels)
        for term in self.terms[1:]:
            total = total + term.absolute_row_sums(num_labels)
        return total

    def self_edges(self) -> list[SelfEdges] | None:
        edges = [term.self_edges() for term in self.terms]
        return None if any(e is None for e in edges) else [one for e in edges for one in e or ()]


@dataclass(frozen=True)
class Multiple(Pairwise):
    """factor P."""

    inner: Pairwise
    factor: float | Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return self.factor * self.inner(x)

    def to_dense(self) -> Tensor:
        return self.factor * self.inner.to_dense()

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        return abs(self.factor) * self.inner.absolute_row_sums(num_labels)

    def self_edges(self) -> list[SelfEdges] | None:
        edges = self.inner.self_edges()
        if edges is None or (isinstance(self.factor, Tensor) and self.factor.dim()):
            return None
        return [SelfEdges(weight, self.factor * matrix) for weight, matrix in edges]


@dataclass(frozen=True)
class Diagonal(Pairwise):
    """diag(weight), one number per node and label."""

    weight: Tensor  # (*batch, n, L)

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight.to(x) * x

    def to_dense(self) -> Tensor:
        return torch.diag_embed(self.weight.flatten(-2))


@dataclass(frozen=True)
class Blocks(Pairwise):
    """diag(weight) (x) matrix: an edge from each node to itself."""

    weight: Tensor  # (*batch, n)
    matrix: Tensor  # (L, L), symmetric

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight.unsqueeze(-1).to(x) * (x @ self.matrix.to(x))

    def to_dense(self) -> Tensor:
        product = torch.einsum(
            "...ij,st->...isjt", torch.diag_embed(self.weight), self.matrix.to(self.weight)
        )
        return product.flatten(-2).flatten(-3, -2)


@dataclass(frozen=True, eq=False)
class Matrix(Pairwise):
    """P as a matrix, ``(*batch, n L, n L)``, symmetrised as (P + P') / 2: for small problems.

    >>> P = Matrix(torch.tensor([[0.0, 2.0], [0.0, 0.0]]), num_labels=1)
    >>> P(torch.tensor([[1.0], [3.0]]))
    tensor([[3.],
            [1.]])
    """

    values: Tensor
    num_labels: int

    def __post_init__(self) -> None:
        v = self.values
        if v.dim() < 2 or v.shape[-1] != v.shape[-2] or v.shape[-1] % self.num_labels:
            raise ValueError(
                f"values has shape {tuple(v.shape)}; expected (*batch, n L, n L) with L = {self.num_labels}."
            )
        object.__setattr__(self, "values", 0.5 * (v + v.mT))

    def __call__(self, x: Tensor) -> Tensor:
        if (
            x.dim() < 2
            or x.shape[-1] != self.num_labels
            or x.shape[-1] * x.shape[-2] != self.values.shape[-1]
        ):
            n = self.values.shape[-1] // self.num_labels
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (*batch, {n}, {self.num_labels}).")
        return (self.values.to(x) @ x.flatten(-2).unsqueeze(-1)).squeeze(-1).unflatten(-1, x.shape[-2:])

    def to_dense(self) -> Tensor:
        return self.values


def dense(
    operators: Sequence[Operator],
    num_labels: int,
    *,
    weights: Sequence[Weight] | None = None,
    compat: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] = 1.0,
    self_edges: bool = False,
) -> Pairwise:
    """P = sum_c (K_c - diag) (x) w_c M_c.

    ``weights`` has one entry per operator, a number or one number per label; ``compat`` is shared by
    all operators, or a sequence of ``Compatibility``, one each. With ``self_edges`` the diagonals of
    the operators are kept, as pydensecrf keeps them.
    """
    if num_labels < 1:
        raise ValueError(f"num_labels={num_labels}; expected at least 1.")
    if not operators:
        raise ValueError(
            "operators is empty; expected at least one: a model without kernels has no pairwise part."
        )
    weights = [1.0] * len(operators) if weights is None else weights
    if len(weights) != len(operators):
        raise ValueError(f"{len(weights)} weights for {len(operators)} operators; expected one each.")
    if isinstance(compat, Sequence) and all(hasattr(c, "apply") for c in compat):
        compats = list(compat)
        if len(compats) != len(operators):
            raise ValueError(
                f"{len(compats)} compatibilities for {len(operators)} operators; expected one each."
            )
    else:
        compats = [compatibility(compat, num_labels)] * len(operators)  # type: ignore[arg-type]
    terms = []
    for operator, weight, c in zip(operators, weights, compats, strict=True):
        K = operator if self_edges else operator.without_self_edges()
        M = c.weighted(_weight(weight, num_labels))  # type: ignore[union-attr]
        terms.append(Kronecker(K, M, num_labels, operator))
    return terms[0] if len(terms) == 1 else Sum(terms)


def of_image(
    kernels: Sequence[Kernel],
    image: Tensor | np.ndarray,
    num_labels: int,
    *,
    compat: float | Sequence[float] | Tensor | Compatibility | Sequence[Compatibility] = 1.0,
    weights: Sequence[Weight] | None = None,
    self_edges: bool = False,
    spatial_dims: int = 2,
    dtype: torch.dtype | None = None,
) -> Pairwise:
    """P of an image, a sum over kernels; ``weights`` replace the weights of the kernels if given.

    The image is laid out as in ``features.pixels``; a ``Gaussian`` takes its channels as features. ``dtype``
    is the dtype of the computation, by default float64 for a float64 image and float32 otherwise.
    """
    kernels, domain = read_kernels(kernels), Domain.of_image(image, spatial_dims=spatial_dims, dtype=dtype)
    return dense(
        [kernel.on(domain) for kernel in kernels],
        num_labels,
        weights=[kernel.weight for kernel in kernels] if weights is None else weights,
        compat=compat,
        self_edges=self_edges,
    )


def _weight(value: Weight, num_labels: int) -> Tensor:
    if isinstance(value, float) and math.isfinite(value):
        return torch.tensor(value)
    w = torch.as_tensor(value)
    w = w if w.is_floating_point() else w.float()
    if w.shape not in ((), (num_labels,)):
        raise ValueError(
            f"a kernel's weight has shape {tuple(w.shape)}; expected a number or one per label "
            f"({num_labels})."
        )
    if has_values(w) and not torch.isfinite(w).all():
        raise ValueError(f"weight={value!r}; expected finite numbers.")
    return w
