"""MAP labels and marginals of a forest, by dynamic programming from the leaves to the roots and back."""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf.lp.traversal import Level, Traversal


def best_labels(
    forest: Traversal,
    unary: Tensor,  # (*batch, n, L)
    tables: Tensor,  # (*batch, m, L, L)
) -> tuple[Tensor, Tensor]:
    """argmin of the energy, ``(*batch, n)``, and optimal dual messages ``(*batch, m, 2, L)``."""
    belief = unary.clone()
    messages = unary.new_zeros(*tables.shape[:-2], 2, unary.shape[-1])
    choices = []
    for level in reversed(forest.levels):
        below = belief[..., level.child, :]
        best, choice = (_costs(level, tables) + below.unsqueeze(-1)).min(-2)
        choices.append(choice)
        belief.index_add_(-2, level.parent, best)  # a chain has a level per node: no copies
        side = level.turned.long()
        messages[..., level.edge, side, :] = below
        messages[..., level.edge, 1 - side, :] = -best
    labels = belief.new_zeros(belief.shape[:-1], dtype=torch.int64)
    labels[..., forest.roots] = belief[..., forest.roots, :].argmin(-1)
    for (child, parent, _, _), choice in zip(forest.levels, reversed(choices), strict=True):
        labels[..., child] = choice.gather(-1, labels[..., parent].unsqueeze(-1)).squeeze(-1)
    # A forbidden label has an infinite belief and needs no message.
    return labels, messages.masked_fill(torch.isinf(messages), 0.0)


def marginals(
    forest: Traversal,
    unary: Tensor,  # (*batch, n, L)
    tables: Tensor,  # (*batch, m, L, L)
) -> tuple[Tensor, Tensor]:
    """Marginals of nodes and of edges in the distribution proportional to exp(-energy)."""
    belief = unary.clone()
    conditionals = []  # P(label of child | label of parent)
    for level in reversed(forest.levels):
        costs = _costs(level, tables) + belief[..., level.child, :, None]
        least = -torch.logsumexp(-costs, -2)
        conditionals.append(torch.exp(least.unsqueeze(-2) - costs).nan_to_num(0.0))  # inf - inf: forbidden
        belief.index_add_(-2, level.parent, least)
    nodes, pairs = torch.zeros_like(unary), torch.zeros_like(tables)
    nodes[..., forest.roots, :] = torch.softmax(-belief[..., forest.roots, :], -1)
    for level, conditional in zip(forest.levels, reversed(conditionals), strict=True):
        both = conditional * nodes[..., level.parent, None, :]
        nodes[..., level.child, :] = both.sum(-1)
        pairs[..., level.edge, :, :] = torch.where(level.turned[:, None, None], both.mT, both)
    return nodes, pairs


def _costs(level: Level, tables: Tensor) -> Tensor:
    """The tables of a level's edges, rows by the child's label and columns by the parent's."""
    found = tables[..., level.edge, :, :]
    return torch.where(level.turned[:, None, None], found.mT, found)
