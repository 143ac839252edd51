"""Potentials: the cost of an edge as a function of the labels of its two nodes.

A shared potential is a weight per edge times one matrix over labels; ``Tables`` has a table per edge. An edge
(i, j) with labels s and t costs ``weight * matrix[s, t]`` or ``table[s, t]``: rows belong to the first node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.native import as_tensor, has_values
from fwcrf.torch_ops.printed import in_one_line

Number = float | Sequence[float] | np.ndarray | Tensor


@dataclass(frozen=True, eq=False)
class Potts:
    """weight [s != t]."""

    weight: Number = 1.0  # one for all edges, (m,) or (*batch, m)

    __repr__ = in_one_line

    def matrix(self, num_labels: int, like: Tensor) -> Tensor | None:
        return None  # implicit: 1 - identity


@dataclass(frozen=True, eq=False)
class TruncatedLinear:
    """weight min(|s - t|, truncation), for numeric labels such as depths.

    >>> TruncatedLinear(truncation=2.0).matrix(4, torch.zeros(1))[0]
    tensor([0., 1., 2., 2.])
    """

    weight: Number = 1.0
    truncation: float | Tensor = torch.inf

    __repr__ = in_one_line

    def matrix(self, num_labels: int, like: Tensor) -> Tensor:
        return _truncated(_distances(num_labels, like), self.truncation)


@dataclass(frozen=True, eq=False)
class TruncatedQuadratic:
    """weight min((s - t)^2, truncation).

    >>> TruncatedQuadratic(truncation=3.0).matrix(4, torch.zeros(1))[0]
    tensor([0., 1., 3., 3.])
    """

    weight: Number = 1.0
    truncation: float | Tensor = torch.inf

    __repr__ = in_one_line

    def matrix(self, num_labels: int, like: Tensor) -> Tensor:
        return _truncated(_distances(num_labels, like).square(), self.truncation)


@dataclass(frozen=True, eq=False)
class Full:
    """weight values[s, t] with any matrix ``(L, L)`` or ``(*batch, L, L)``, symmetric or not."""

    values: Any
    weight: Number = 1.0

    __repr__ = in_one_line

    def matrix(self, num_labels: int, like: Tensor) -> Tensor:
        return _floats(self.values, "the matrix over labels", like)


@dataclass(frozen=True, eq=False)
class Tables:
    """values[e, s, t]: a table per edge, ``(m, L, L)`` or ``(*batch, m, L, L)``."""

    values: Any = field(repr=False)

    __repr__ = in_one_line


Shared = Potts | TruncatedLinear | TruncatedQuadratic | Full
Potential = Shared | Tables


def potential(value: Any, num_edges: int, num_labels: int) -> Potential:
    """The potential of a user's argument: Potts for a number or ``(m,)``, Full for ``(L, L)``, or Tables.

    >>> potential(2.0, num_edges=5, num_labels=3)
    Potts(weight=2.0)
    """
    if isinstance(value, Potential):
        return value
    shape = tuple(np.shape(value) if not isinstance(value, Tensor) else value.shape)
    if shape in ((), (num_edges,)):
        return Potts(value)
    if shape == (num_labels, num_labels):
        return Full(value)
    if len(shape) >= 3 and shape[-3:] == (num_edges, num_labels, num_labels):
        return Tables(value)
    raise ValueError(
        f"pairwise has shape {shape}; expected a number or ({num_edges},) for Potts, ({num_labels}, "
        f"{num_labels}) for a matrix that the {num_edges} edges share, or ({num_edges}, {num_labels}, "
        f"{num_labels}) for a table per edge. For batches and other shapes, pass fwcrf.graphs.Potts, "
        "TruncatedLinear, TruncatedQuadratic, Full or Tables."
    )


def read_weight(weight: Number, num_edges: int, like: Tensor) -> Tensor:
    """Weights as ``(*batch, m)``, or ``(*batch, 1)`` for a common weight of all edges."""
    w = _floats(weight, "the weight of the edges", like)
    w = w.unsqueeze(-1) if w.dim() == 0 else w
    if w.shape[-1] not in (1, num_edges):
        raise ValueError(
            f"the weight of the edges has shape {tuple(w.shape)}; expected a number, ({num_edges},) or "
            f"(*batch, {num_edges}): one per edge."
        )
    return w


def read_tables(values: Any, num_edges: int, num_labels: int, like: Tensor) -> Tensor:
    t = _floats(values, "tables", like)
    if t.dim() < 3 or t.shape[-3:] != (num_edges, num_labels, num_labels):
        raise ValueError(
            f"tables has shape {tuple(t.shape)}; expected (*batch, {num_edges}, {num_labels}, {num_labels}): "
            "one per edge, rows for its first node."
        )
    return t


def _floats(value: Any, name: str, like: Tensor) -> Tensor:
    try:
        t = as_tensor(value if isinstance(value, Tensor) else np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} is {type(value).__name__}; expected numbers.") from error
    if t.is_complex() or t.dtype == torch.bool:
        raise TypeError(f"{name} has dtype {t.dtype}; expected numbers.")
    return t.to(like)


def _distances(num_labels: int, like: Tensor) -> Tensor:
    label = torch.arange(num_labels, dtype=like.dtype, device=like.device)
    return (label[:, None] - label).abs()


def _truncated(cost: Tensor, truncation: float | Tensor) -> Tensor:
    most = as_tensor(truncation).to(cost)
    if most.dim() or (has_values(most) and not bool(most >= 0)):
        raise ValueError(f"truncation={truncation!r}; expected one number, 0 or more.")
    return torch.minimum(cost, most)
