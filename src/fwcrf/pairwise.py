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
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Full, Potts, compatibility, symmetric
from fwcrf.compatibility import Diagonal as Values
from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model
from fwcrf.inputs.numbers import reals, shown
from fwcrf.kernels.kernel import Domain, Kernel, Weight, read_kernels
from fwcrf.kernels.operator import Operator
from fwcrf.torch_ops.magnitudes import WEIGHT, refuse_weight
from fwcrf.torch_ops.native import matmul, observed, plain
from fwcrf.torch_ops.precision import wide, widest
from fwcrf.torch_ops.printed import in_one_line


def inner(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> per image, ``(*batch,)``, in float64."""
    # Over labels in the dtype of a: a sum of all entries in float64 would first copy the product in float64.
    return (a * b).sum(-1).sum(-1, dtype=widest(a.device))


def largest(values: Tensor) -> float:
    """The largest absolute value; 0 if the values cannot be read."""
    hidden = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or values.is_meta
    if hidden or values.numel() == 0 or isinstance(values, torch._subclasses.FakeTensor):
        return 0.0
    return float(values.detach().abs().max()) if values.dim() else abs(values.item())


class SelfEdges(NamedTuple):
    """diag(weight) (x) M: the edges from each node to itself.

    Edges with one object ``compat`` have the same matrix for all values of the parameters.
    """

    weight: Tensor  # (*batch, n)
    compat: Compatibility

    __repr__ = in_one_line


class Pairwise(ABC):
    """P on ``(*batch, n, L)``, symmetric; closed under + and multiplication by a number."""

    magnitude: float = 0.0  # the largest |weight x compatibility|; 0 if it is not known

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
        """Refuse weights whose sums may overflow, and an x with another number of labels than P has."""
        if self.magnitude > WEIGHT:
            refuse_weight(self.magnitude)

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

    def label_products(self, x: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None] | None:
        """Pairs (Q, M) with <x, P x> = sum <Q, M>: Q[s, t] = <x_s, K x_t>, ``(*batch, L, L)`` in float64.

        One pair per term K (x) M; and P x if all terms are Potts with one weight and no entry of a kernel is
        below 0, else None. None if P is no sum of such terms.
        """
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
        if model is not None:
            return model.apply(x, unary)
        return self._term_by_term(x) + unary if x.is_cpu else self._added_to(unary, x)

    def _added_to(self, total: Tensor, x: Tensor) -> Tensor:
        """total + P x, term by term, a Potts term in one launch."""
        for part in self._parts():
            if isinstance(part, Kronecker) and isinstance(part.compat, Potts):
                part.check(x)
                total = part.compat.added(part.operator(x), total)
            else:
                total = total + part(x)
        return total

    def engine(self) -> Model | Refusal:
        # A model that is kept must not hold tensors of one trace or transform.
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
            return Refusal("torch traces or transforms the code")
        return self._model

    def check(self, x: Tensor) -> None:
        for part in self._parts():
            part.check(x)

    def label_products(self, x: Tensor) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None] | None:
        parts = self._parts()
        if not all(isinstance(part, Kronecker) for part in parts):
            return None
        matrices = [part.compat.matrix(x.shape[-1]).to(x.device, widest(x.device)) for part in parts]  # type: ignore[attr-defined]
        common = matrices[0]
        if float(torch.linalg.cond(common)) < 1e6 and all(_proportional(M, common) for M in matrices):
            # P x = (sum of K_c x) N, for all kernels at once.
            y = self(x)
            concave = all(_is_penalty(part) for part in parts)  # type: ignore[arg-type]
            known = [(symmetric(products(x, y) @ torch.linalg.inv(common)), common)]
            return known, y if concave and x.shape[-1] > 1 else None
        of = [part.operator(x) for part in parts]  # type: ignore[attr-defined]
        return [(symmetric(products(x, y)), M) for y, M in zip(of, matrices, strict=True)], None

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

    @cached_property  # its tables have no gradients: no mode changes them
    def _model(self) -> Model | Refusal:
        parts = self._parts()
        if not all(isinstance(part, Kronecker) for part in parts):
            return Refusal("a term of the sum is not a kernel with a compatibility")
        return Model.of([(part.operator, part.compat) for part in parts])  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Kronecker(Dense):
    """K (x) M: K weighs the neighbours, M penalises their labels."""

    operator: Operator
    compat: Compatibility
    num_labels: int
    with_diagonal: Operator | None = None  # K before its diagonal was removed, or K itself; None if unknown
    factors: tuple[Tensor, Compatibility] | None = None  # (w, N) with M = w N for a number w
    magnitude: float = 0.0  # the largest |entry| of M; 0 if it is not known

    __repr__ = in_one_line

    def _term_by_term(self, x: Tensor) -> Tensor:
        self.check(x)
        return self.compat.apply(self.operator(x))

    def _parts(self) -> Sequence[Pairwise]:
        return [self]

    def check(self, x: Tensor) -> None:
        """Refuse an x whose number of labels is not ``num_labels``, and weights that are too large."""
        if x.dim() < 2 or x.shape[-1] != self.num_labels:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; expected (*batch, {self.operator.n}, {self.num_labels}): "
                f"{self.num_labels} labels on the last axis."
            )
        if self.magnitude > WEIGHT:
            refuse_weight(self.magnitude)

    def to_dense(self) -> Tensor:
        K = self.operator.to_dense()
        M = self.compat.matrix(self.num_labels).to(K)
        return _kronecker(K, M)

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        # Gaussian kernels and their approximations have no negative entries.
        sums = self.operator.row_sums()
        of_labels = _absolute_sums(self.compat, num_labels).to(sums)
        return sums.unsqueeze(-1) * of_labels

    def self_edges(self) -> list[SelfEdges] | None:
        if self.with_diagonal is None:
            return None
        kept = self.with_diagonal is self.operator
        removed = self.with_diagonal.diagonal()
        removed = torch.zeros_like(removed) if kept else removed
        w, M = self.factors or (1.0, self.compat)
        w = w.to(removed) if isinstance(w, Tensor) else w
        return [SelfEdges(w * removed, M)]


@dataclass(frozen=True, eq=False)
class Sum(Dense):
    """P_1 + P_2 + ..."""

    terms: Sequence[Pairwise]

    __repr__ = in_one_line

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


@dataclass(frozen=True, eq=False)
class Multiple(Pairwise):
    """factor P."""

    inner: Pairwise
    factor: float | Tensor

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        self.check(x)
        return self.factor * self.inner(x)

    @cached_property
    def magnitude(self) -> float:  # type: ignore[override]
        factor = self.factor
        return (largest(factor) if isinstance(factor, Tensor) else abs(factor)) * self.inner.magnitude

    def to_dense(self) -> Tensor:
        return self.factor * self.inner.to_dense()

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        return abs(self.factor) * self.inner.absolute_row_sums(num_labels)

    def self_edges(self) -> list[SelfEdges] | None:
        edges = self.inner.self_edges()
        if edges is None or (isinstance(self.factor, Tensor) and self.factor.dim()):
            return None
        return [edge._replace(weight=self.factor * edge.weight) for edge in edges]


@dataclass(frozen=True, eq=False)
class Diagonal(Pairwise):
    """diag(weight), one number per node and label."""

    weight: Tensor  # (*batch, n, L)

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight.to(x) * x

    def to_dense(self) -> Tensor:
        return torch.diag_embed(self.weight.flatten(-2))


@dataclass(frozen=True, eq=False)
class Blocks(Pairwise):
    """diag(weight) (x) M: an edge from each node to itself."""

    weight: Tensor  # (*batch, n)
    compat: Compatibility
    num_labels: int

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        return self.weight.unsqueeze(-1).to(x) * self.compat.apply(x)

    def to_dense(self) -> Tensor:
        return _kronecker(torch.diag_embed(self.weight), self.compat.matrix(self.num_labels).to(self.weight))


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

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        v = self.values
        if v.dim() < 2 or v.shape[-1] != v.shape[-2] or v.shape[-1] % self.num_labels:
            raise ValueError(
                f"values has shape {tuple(v.shape)}; expected (*batch, n L, n L) with L = {self.num_labels}."
            )
        object.__setattr__(self, "values", symmetric(v))

    def __call__(self, x: Tensor) -> Tensor:
        if (
            x.dim() < 2
            or x.shape[-1] != self.num_labels
            or x.shape[-1] * x.shape[-2] != self.values.shape[-1]
        ):
            n = self.values.shape[-1] // self.num_labels
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (*batch, {n}, {self.num_labels}).")
        self.check(x)
        return matmul(self.values.to(x), x.flatten(-2).unsqueeze(-1)).squeeze(-1).unflatten(-1, x.shape[-2:])

    @cached_property
    def magnitude(self) -> float:  # type: ignore[override]
        return largest(self.values)

    def to_dense(self) -> Tensor:
        return self.values


def products(x: Tensor, y: Tensor) -> Tensor:
    """<x_s, y_t> of all pairs of labels, ``(*batch, L, L)``, in float64."""
    return matmul(wide(x.mT), wide(y))


def _is_penalty(part: Kronecker) -> bool:
    """True for Potts with one weight from 0 on and a symmetric kernel without entries below 0."""
    K, M = part.operator, part.compat
    potts = isinstance(M, Potts) and M.weight.dim() == 0 and bool(M.weight >= 0)
    return potts and K.is_symmetric and K.nonnegative


def _proportional(M: Tensor, N: Tensor) -> bool:
    factor = (M * N).sum() / (N * N).sum()
    return bool(torch.allclose(M, factor * N, rtol=0, atol=1e-12 * float(M.abs().max())))


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
    given: Any = compat
    each: list[Any] = [given] * len(operators)
    if isinstance(compat, Sequence) and all(hasattr(c, "apply") for c in compat):
        each = list(compat)
        if len(each) != len(operators):
            raise ValueError(
                f"{len(each)} compatibilities for {len(operators)} operators; expected one each."
            )
    elif type(compat) is not float:
        each = [compatibility(compat, num_labels)] * len(operators)  # type: ignore[arg-type]
    terms, keep = [], not observed()
    for operator, weight, c in zip(operators, weights, each, strict=True):
        example = operator.example
        K = operator if self_edges else operator.without_self_edges()
        plainly = keep and type(weight) is float and type(c) is float
        M, factors, size = (_known_penalties if plainly else _penalties)(weight, c, num_labels)
        if not example.is_cpu and isinstance(M, Potts | Values | Full):
            M = M.near(example)
        terms.append(Kronecker(K, M, num_labels, operator, factors, size))
    return terms[0] if len(terms) == 1 else Sum(terms)


def _penalties(
    weight: Weight, compat: float | Compatibility, num_labels: int
) -> tuple[Compatibility, tuple[Tensor, Compatibility] | None, float]:
    """``compat``, ``factors`` and ``magnitude`` of a ``Kronecker``."""
    w = _weight(weight, num_labels)
    c: Any = compatibility(compat, num_labels) if isinstance(compat, float) else compat
    # Of Potts and of a diagonal, no matrix over all pairs of labels is made.
    entries = c.weight if isinstance(c, Potts) else getattr(c, "values", None)
    size = largest(w) * largest(c.matrix(num_labels) if entries is None else entries)
    M = c.weighted(w)
    # One object for all Potts matrices: terms with one N have a common matrix.
    unit = isinstance(c, Potts) and c.weight.dim() == 0
    return M, None if w.dim() else (M.weight, _UNIT_POTTS) if unit else (w, c), size


@lru_cache(maxsize=64)
def _known_penalties(
    weight: float, compat: float, num_labels: int
) -> tuple[Compatibility, tuple[Tensor, Compatibility] | None, float]:
    """``_penalties`` of two numbers, which most models have."""
    with plain():
        return _penalties(weight, compat, num_labels)


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


_UNIT_POTTS = Potts(torch.tensor(1.0, dtype=torch.float64, device="cpu"))


def _absolute_sums(compat: Compatibility, num_labels: int) -> Tensor:
    """sum_t |M_st|, ``(L,)``."""
    if not isinstance(compat, Potts):
        return compat.matrix(num_labels).abs().sum(-1)
    # Without the matrix, which would be large for many labels.
    w = compat.weight
    if w.dim() == 0:
        return w.abs().expand(num_labels) * (num_labels - 1)
    # M_st = (w_s + w_t) / 2 is negative for the first labels t in ascending order of their weights.
    ascending = w.sort().values
    sums = torch.nn.functional.pad(ascending.cumsum(0), (1, 0))
    first = torch.searchsorted(ascending, -w)
    total = w * (num_labels - 2 * first) + sums[-1] - 2 * sums[first]
    return 0.5 * total - w.abs()


def _kronecker(K: Tensor, M: Tensor) -> Tensor:
    """K (x) M, ``(*batch, n L, n L)``."""
    product = K[..., :, None, :, None] * M[:, None, :]
    return product.flatten(-2).flatten(-3, -2)


def _weight(value: Weight, num_labels: int) -> Tensor:
    if isinstance(value, float) and math.isfinite(value):
        return torch.tensor(value, dtype=torch.float64, device="cpu")
    # The model's dtype is not known yet.
    w = (
        value
        if isinstance(value, Tensor) and value.is_floating_point()
        else reals(value, "weight", torch.float64)
    )
    if w.shape not in ((), (num_labels,)):
        raise ValueError(
            f"a kernel's weight has shape {tuple(w.shape)}; expected a number or one per label "
            f"({num_labels})."
        )
    if not math.isfinite(largest(w)):
        raise ValueError(f"weight={shown(value)}; expected finite numbers.")
    return w
