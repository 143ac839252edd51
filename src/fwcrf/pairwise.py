"""P, the pairwise part of the energy: a symmetric operator on ``(*batch, n, L)``.

A dense model is a sum of terms (K - diag) (x) M, one per kernel. Anything with ``__call__`` and
``to_dense`` can take its place, which is how sparse graphs enter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, compatibility
from fwcrf.kernels.gaussians import Kernel, Weight
from fwcrf.kernels.operator import Operator


class Pairwise(ABC):
    """P on ``(*batch, n, L)``, symmetric; closed under + and multiplication by a number."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """P x."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """The matrix, ``(*batch, n L, n L)``: for tests and small problems."""

    def __add__(self, other: Pairwise) -> Pairwise:
        return Sum((self, other))

    def __mul__(self, factor: float | Tensor) -> Pairwise:
        return Multiple(self, factor)

    __rmul__ = __mul__


@dataclass(frozen=True)
class Kronecker(Pairwise):
    """K (x) M: neighbours by K, penalties by M."""

    operator: Operator
    compat: Compatibility
    num_labels: int

    def __call__(self, x: Tensor) -> Tensor:
        if x.dim() < 2 or x.shape[-1] != self.num_labels:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected (*batch, {self.operator.n}, {self.num_labels}): "
                f"{self.num_labels} labels on the last axis."
            )
        return self.compat.apply(self.operator(x))

    def to_dense(self) -> Tensor:
        K = self.operator.to_dense()
        M = self.compat.matrix(self.num_labels).to(K)
        product = torch.einsum("...ij,st->...isjt", K, M)
        size = K.shape[-1] * self.num_labels
        return product.reshape(*K.shape[:-2], size, size)


@dataclass(frozen=True)
class Sum(Pairwise):
    """P_1 + P_2 + ..."""

    terms: Sequence[Pairwise]

    def __call__(self, x: Tensor) -> Tensor:
        total = self.terms[0](x)
        for term in self.terms[1:]:
            total = total + term(x)
        return total

    def to_dense(self) -> Tensor:
        total = self.terms[0].to_dense()
        for term in self.terms[1:]:
            total = total + term.to_dense()
        return total


@dataclass(frozen=True)
class Multiple(Pairwise):
    """factor P."""

    inner: Pairwise
    factor: float | Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return self.factor * self.inner(x)

    def to_dense(self) -> Tensor:
        return self.factor * self.inner.to_dense()


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
    terms = [
        Kronecker(
            operator if self_edges else operator.without_self_edges(),
            c.weighted(_weight(weight, num_labels)),  # type: ignore[union-attr]
            num_labels,
        )
        for operator, weight, c in zip(operators, weights, compats, strict=True)
    ]
    return terms[0] if len(terms) == 1 else Sum(terms)


def of_image(
    kernels: Sequence[Kernel],
    image: Tensor | np.ndarray,
    num_labels: int,
    *,
    compat: float | Sequence[float] | Tensor | Compatibility = 1.0,
    self_edges: bool = False,
) -> Pairwise:
    """P of an image for kernels as the user names them, with their weights."""
    return dense(
        [kernel.operator(image) for kernel in kernels],
        num_labels,
        weights=[kernel.weight for kernel in kernels],
        compat=compat,
        self_edges=self_edges,
    )


def _weight(value: Weight, num_labels: int) -> Tensor:
    w = torch.as_tensor(value)
    w = w if w.is_floating_point() else w.float()
    if w.shape not in ((), (num_labels,)):
        raise ValueError(
            f"a kernel's weight has shape {tuple(w.shape)}; expected a number or one per label "
            f"({num_labels})."
        )
    if not torch.isfinite(w).all():
        raise ValueError(f"weight={value!r}; expected finite numbers.")
    return w
