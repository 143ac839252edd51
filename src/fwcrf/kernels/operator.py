"""The interface of a kernel operator: a linear map over the points of an image.

An operator acts on ``x`` of shape ``(*batch, n, channels)``, on each channel separately. Kernels are
symmetric, except with the normalizations "before" and "after".

A model needs two operations on kernels: scaling of rows and columns, and a change of the diagonal::

    K.scaled(a)            diag(a) K diag(a)
    K.shifted(e)           K + diag(e)
    K.normalized(mode)     rows and columns scaled by powers of the row sums
    K.without_self_edges() K - diag(K)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from fwcrf.torch_ops.native import has_values, with_memory_errors
from fwcrf.torch_ops.printed import in_one_line

Normalization = Literal["symmetric", "none", "before", "after"]


def check_normalization(mode: str) -> None:
    if mode not in get_args(Normalization):
        raise ValueError(
            f"normalization={mode!r} is not known; expected one of {', '.join(get_args(Normalization))}."
        )


class Operator(ABC):
    """A linear map K on ``(*batch, n, channels)``, the same for every channel."""

    n: int
    batch_shape: torch.Size
    nonnegative = False  # True if no entry off the diagonal is below 0, whatever the values of the points
    is_symmetric = False  # True if K is its transpose

    @abstractmethod
    def apply(self, x: Tensor) -> Tensor:  # (*batch, n, channels), already checked
        """K x."""

    def apply_shifted(self, x: Tensor, shift: Tensor) -> Tensor:
        """(K + diag(shift)) x, for a shift ``(*batch, n)``."""
        return torch.addcmul(self.apply(x), shift.unsqueeze(-1).to(x.dtype), x)

    @property
    @abstractmethod
    def T(self) -> Operator:
        """The exact transpose."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """The entries K_ii, ``(*batch, n)``."""

    def scaled(self, left: Tensor, right: Tensor | None = None) -> Operator:
        """diag(left) K diag(right); ``right`` is ``left`` unless given. Both ``(*batch, n)``."""
        return Rescaled(self, left, left if right is None else right)

    def shifted(self, shift: Tensor) -> Operator:
        """K + diag(shift), ``shift`` of shape ``(*batch, n)``."""
        return Shifted(self, shift)

    @with_memory_errors
    def __call__(self, x: Tensor) -> Tensor:
        check_values(x, self.n, self.batch_shape)
        return self.apply(x)

    @property
    @abstractmethod
    def example(self) -> Tensor:
        """A tensor with the dtype and device of the operator."""

    @with_memory_errors
    def row_sums(self) -> Tensor:
        """K 1, ``(*batch, n)``."""
        ones = self.example.new_ones(*self.batch_shape, self.n, 1)
        return self.apply(ones).squeeze(-1)

    @with_memory_errors
    def to_dense(self) -> Tensor:
        """The matrix, ``(*batch, n, n)``: for tests and small problems."""
        eye = torch.eye(self.n, dtype=self.example.dtype, device=self.example.device)
        return self.apply(eye.expand(*self.batch_shape, self.n, self.n))

    def normalized(self, mode: Normalization) -> Operator:
        """Divide by the row sums D = K 1.

        ``"symmetric"``: D^-1/2 K D^-1/2; ``"before"``: K D^-1; ``"after"``: D^-1 K; ``"none"``: K.
        """
        check_normalization(mode)
        if mode == "none":
            return self
        sums = self.row_sums()
        if has_values(sums):
            least, most = torch.stack(sums.detach().aminmax()).cpu().tolist()
            check_sums(least, most, sums.dtype)
        if mode == "symmetric":
            return self.scaled(sums.rsqrt())
        ones = torch.ones_like(sums)
        return self.scaled(ones, 1 / sums) if mode == "before" else self.scaled(1 / sums, ones)

    def with_unit_diagonal(self) -> Operator:
        """K with every K_ii set to 1, as a Gaussian has it."""
        return self.shifted(1 - self.diagonal())

    def without_self_edges(self) -> Operator:
        """K - diag(K): no point is its own neighbour."""
        return self.shifted(-self.diagonal())


def check_sums(least: float, most: float, dtype: torch.dtype) -> None:
    """Refuse row sums to divide by, if the least is not above the rounding error of the largest."""
    if least <= 4 * torch.finfo(dtype).eps * most:
        raise ValueError(
            f"a row of the operator sums to {least:.3g}; expected positive sums to divide by. Normalize "
            "before removing self-edges: a point far from all other points has no other edge."
        )


@dataclass(frozen=True, eq=False)
class Rescaled(Operator):
    """diag(left) K diag(right), for operators that cannot absorb the factors."""

    inner: Operator
    left: Tensor  # (*batch, n)
    right: Tensor  # (*batch, n)

    __repr__ = in_one_line

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.inner.n

    @property
    def is_symmetric(self) -> bool:  # type: ignore[override]
        return self.left is self.right and self.inner.is_symmetric

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        return self.inner.nonnegative and all(bool((s >= 0).all()) for s in (self.left, self.right))

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        return broadcast(self.inner.batch_shape, self.left.shape[:-1])

    @property
    def example(self) -> Tensor:
        return self.inner.example

    def apply(self, x: Tensor) -> Tensor:
        left, right = (s.unsqueeze(-1).to(x.dtype) for s in (self.left, self.right))
        return left * self.inner.apply(right * x)

    @property
    def T(self) -> Operator:
        return Rescaled(self.inner.T, self.right, self.left)

    def diagonal(self) -> Tensor:
        return self.left * self.inner.diagonal() * self.right

    def scaled(self, left: Tensor, right: Tensor | None = None) -> Operator:
        right = left if right is None else right
        return replace(self, left=self.left * left, right=self.right * right)


@dataclass(frozen=True, eq=False)
class Shifted(Operator):
    """K + diag(shift), for operators that cannot absorb the shift."""

    inner: Operator
    shift: Tensor  # (*batch, n)

    __repr__ = in_one_line

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.inner.n

    @property
    def is_symmetric(self) -> bool:  # type: ignore[override]
        return self.inner.is_symmetric

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        return self.inner.nonnegative

    @property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        return broadcast(self.inner.batch_shape, self.shift.shape[:-1])

    @property
    def example(self) -> Tensor:
        return self.inner.example

    def apply(self, x: Tensor) -> Tensor:
        return self.inner.apply_shifted(x, self.shift)

    @property
    def T(self) -> Operator:
        return Shifted(self.inner.T, self.shift)

    def diagonal(self) -> Tensor:
        return self.inner.diagonal() + self.shift

    def scaled(self, left: Tensor, right: Tensor | None = None) -> Operator:
        right = left if right is None else right
        return Shifted(self.inner.scaled(left, right), left * self.shift * right)

    def shifted(self, shift: Tensor) -> Operator:
        return replace(self, shift=self.shift + shift)


def broadcast(*shapes: torch.Size) -> torch.Size:
    """``torch.broadcast_shapes``, called only if shapes differ, because its first call loads sympy.

    >>> broadcast(torch.Size([2, 1]), torch.Size(), torch.Size([3]))
    torch.Size([2, 3])
    """
    known = {*filter(None, shapes)}
    if len(known) < 2:
        return known.pop() if known else torch.Size()
    return torch.broadcast_shapes(*shapes)


def check_values(x: Tensor, n: int, batch_shape: torch.Size) -> None:
    """Refuse an x that is not a float tensor, has not n points, or has another batch."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}; expected a torch tensor: torch.from_numpy(x) makes one.")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"x has dtype {x.dtype}; expected float32 or float64: convert with x.float().")
    if x.dim() < 2 or x.shape[-2] != n:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; expected (*batch, {n}, channels): "
            f"one row for each of the {n} points, channels last."
        )
    try:
        broadcast(x.shape[:-2], batch_shape)
    except RuntimeError:
        raise ValueError(
            f"x has shape {tuple(x.shape)}, a batch of {tuple(x.shape[:-2])}; the operator was built for a "
            f"batch of {tuple(batch_shape)}. They must be equal, or one of them empty."
        ) from None


def check_features(features: Tensor) -> None:
    """Refuse features that are not a float tensor ``(*batch, n, d)``, or are empty."""
    if not isinstance(features, Tensor):
        raise TypeError(
            f"features is a {type(features).__name__}; expected a torch tensor: torch.as_tensor makes one."
        )
    if features.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"features has dtype {features.dtype}; expected float32 or float64.")
    if features.dim() < 2 or features.numel() == 0:
        raise ValueError(
            f"features has shape {tuple(features.shape)}; expected (*batch, n, d) with at least one point."
        )
