"""Penalties for the labels of two neighbours: a symmetric matrix M over labels, applied to rows.

``compatibility(value)`` reads the user's value: a number is Potts, a vector is a diagonal matrix, and a
matrix is symmetrised as (M + M') / 2. Entries are energies, not scores: a positive entry is a penalty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fwcrf.inputs.numbers import reals, shown
from fwcrf.torch_ops import triton_engine
from fwcrf.torch_ops.native import has_values, matmul
from fwcrf.torch_ops.potts import added_potts
from fwcrf.torch_ops.printed import in_one_line


class Compatibility(Protocol):
    """A symmetric matrix M over L labels."""

    def apply(self, y: Tensor) -> Tensor:  # (*batch, n, L)
        """y M."""
        ...

    def matrix(self, num_labels: int) -> Tensor: ...

    def weighted(self, weight: Tensor) -> Compatibility:
        """M times a kernel's weight: a scalar, or one per label as (diag(w) M + M diag(w)) / 2."""
        ...


@dataclass(frozen=True)
class Potts:
    """M_st = w [s != t], or (w_s + w_t) / 2 [s != t] for one weight per label."""

    weight: Tensor  # () or (L,)

    __repr__ = in_one_line

    def apply(self, y: Tensor) -> Tensor:
        w = self.weight.to(y)
        total = y.sum(-1, keepdim=True)
        if w.dim() == 0:
            return w * (total - y)
        weighted = w * y
        return 0.5 * (w * total + weighted.sum(-1, keepdim=True)) - weighted

    def matrix(self, num_labels: int) -> Tensor:
        w = self.weight.expand(num_labels)
        mean = 0.5 * (w[:, None] + w[None, :])
        return mean - torch.diag(mean.diagonal())

    def weighted(self, weight: Tensor) -> Potts:
        if self.weight.dim() and weight.dim():
            raise ValueError(
                "both the kernel's weight and the Potts weight are per label; make one of them a number."
            )
        return Potts(self.weight * weight)

    def near(self, x: Tensor) -> Potts:
        """M in the dtype and on the device of x, so that no application has to copy it there."""
        return Potts(brought(self.weight, x))

    def added(self, y: Tensor, base: Tensor) -> Tensor:
        """base + y M; on a GPU in one launch."""
        if self.weight.dim() == 0 and triton_engine.serves(y) and self.weight.dtype == y.dtype:
            return added_potts(y, base, self.weight)
        return base + self.apply(y)


@dataclass(frozen=True)
class Diagonal:
    """M = diag(v): v_s is the penalty for two neighbours with the same label s; a reward if negative."""

    values: Tensor  # (L,)

    __repr__ = in_one_line

    def apply(self, y: Tensor) -> Tensor:
        return y * self.values.to(y)

    def matrix(self, num_labels: int) -> Tensor:
        return torch.diag(self.values)

    def weighted(self, weight: Tensor) -> Diagonal:
        return Diagonal(self.values * weight)

    def near(self, x: Tensor) -> Diagonal:
        return Diagonal(brought(self.values, x))


@dataclass(frozen=True)
class Full:
    """Any symmetric matrix."""

    values: Tensor  # (L, L)

    __repr__ = in_one_line

    def apply(self, y: Tensor) -> Tensor:
        return matmul(y, self.values.to(y))

    def matrix(self, num_labels: int) -> Tensor:
        return self.values

    def weighted(self, weight: Tensor) -> Full:
        product = weight.unsqueeze(-1) * self.values if weight.dim() else weight * self.values
        return Full(symmetric(product))

    def near(self, x: Tensor) -> Full:
        return Full(brought(self.values, x))


def brought(values: Tensor, x: Tensor) -> Tensor:
    """The values in the dtype and on the device of x; a known number without a copy that waits."""
    if values.is_cpu and not values.dim() and not values.requires_grad and has_values(values):
        return torch.full((), values.item(), dtype=x.dtype, device=x.device)
    return values.to(x)


def symmetric(M: Tensor) -> Tensor:
    """(M + M') / 2, which does not overflow."""
    return 0.5 * M + 0.5 * M.mT


def compatibility(value: float | Sequence[float] | Tensor | Compatibility, num_labels: int) -> Compatibility:
    """Read a number (Potts), a vector (diagonal) or a matrix (full) over ``num_labels`` labels.

    >>> compatibility(2.0, 3).matrix(3)
    tensor([[0., 2., 2.],
            [2., 0., 2.],
            [2., 2., 0.]], dtype=torch.float64)
    """
    if isinstance(value, Potts | Diagonal | Full):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return Potts(torch.tensor(value, dtype=torch.float64, device="cpu"))
    m = reals(value, "compatibility", torch.float64)  # the model's dtype is not known yet
    if m.shape not in ((), (num_labels,), (num_labels, num_labels)):
        raise ValueError(
            f"compatibility has shape {tuple(m.shape)}; expected a number (Potts), {num_labels} numbers "
            f"(diagonal) or a {num_labels} x {num_labels} matrix for {num_labels} labels."
        )
    if has_values(m) and not torch.isfinite(m).all():
        raise ValueError(
            f"compatibility={shown(value)} has NaN or infinite entries; expected finite numbers."
        )
    if m.dim() == 0:
        return Potts(m)
    return Diagonal(m) if m.dim() == 1 else Full(symmetric(m))
