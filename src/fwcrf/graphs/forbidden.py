"""Finite penalties instead of +inf for forbidden pairs of labels.

inf times a probability of 0 would be NaN. The penalty exceeds any gain from other labels. The best
labelling therefore stays the best, if a labelling without forbidden pairs exists.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf.torch_ops.native import has_values


def finite_tables(tables: Tensor, unary: Tensor) -> Tensor:
    """Tables ``(*batch, m, L, L)`` with penalties instead of +inf; the tensor itself if it has none."""
    infinite = _infinite(tables, "tables")
    if infinite is None:
        return tables
    low, spread = _range(tables.flatten(-2))
    penalty = _above(_unary_spread(unary) + spread.sum(-1).amax())
    return torch.where(infinite, low[..., None, None] + penalty, tables)


def finite_matrix(matrix: Tensor, weight: Tensor, num_edges: int, unary: Tensor) -> Tensor:
    """``finite_tables`` for a matrix shared by all edges."""
    infinite = _infinite(matrix, "the matrix over labels")
    if infinite is None:
        return matrix
    least = float(weight.detach().amin()) if weight.numel() else 1.0
    if not least > 0:
        raise ValueError(
            f"the matrix over labels has infinite entries and an edge has weight {least:g}; expected weights "
            "above 0, or a table per edge."
        )
    low, spread = _range(matrix.flatten(-2))
    total = weight.detach().expand(*weight.shape[:-1], num_edges).sum(-1).amax()
    penalty = _above(_unary_spread(unary) + total * spread.amax()) / least
    return torch.where(infinite, low[..., None, None] + penalty, matrix)


def _infinite(costs: Tensor, name: str) -> Tensor | None:
    """Mask of the costs that are +inf. None if there are none. Raises for NaN and -inf."""
    if not has_values(costs) or bool(torch.isfinite(costs.detach().sum())):
        return None
    if bool(torch.isnan(costs).any()) or bool((costs == -torch.inf).any()):
        raise ValueError(
            f"{name} has NaN or -inf entries; expected finite energies, or +inf for pairs of labels that are "
            "forbidden."
        )
    infinite = costs == torch.inf
    return infinite if bool(infinite.any()) else None


def _above(savings: Tensor) -> Tensor:
    """Twice the savings; 1 if there are none. Numbers of the savings' size are exact to the same digit."""
    return torch.where(savings > 0, 2 * savings, 1.0)


def _unary_spread(unary: Tensor) -> Tensor:
    return _range(unary.detach())[1].sum(-1).amax()


def _range(costs: Tensor) -> tuple[Tensor, Tensor]:
    """The least finite cost along the last axis, and the largest finite cost minus it."""
    costs = costs.detach()
    infinite = torch.isinf(costs)
    none = infinite.all(-1)
    low = costs.amin(-1).masked_fill(none, 0.0)
    high = costs.masked_fill(infinite, -torch.inf).amax(-1).masked_fill(none, 0.0)
    return low, high - low
