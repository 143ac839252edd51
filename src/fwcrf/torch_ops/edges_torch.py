"""Sums and products over edges in plain torch, for devices without native code."""

from __future__ import annotations

import torch
from torch import Tensor

from fwcrf.torch_ops.native import matmul


def edge_sum(
    x: Tensor,  # (images, n, L)
    unary: Tensor | None,
    weight: Tensor,  # (1 or images, m or 1)
    matrix: Tensor | None,  # (1 or images, L, L)
    potts: bool,
    turned: float,
    edges: Tensor,  # (m, 2)
) -> Tensor:
    """u + (K x) M with K_ij = weight and K_ji = turned weight for an edge (i, j)."""
    i, j = edges.long().unbind(-1)
    w = weight.unsqueeze(-1)
    y = torch.zeros_like(x).index_add(-2, i, w * x[:, j]).index_add(-2, j, (turned * w) * x[:, i])
    if potts:
        y = y.sum(-1, keepdim=True) - y
    if matrix is not None:
        y = matmul(y, matrix)
    return y if unary is None else y + unary


def table_sum(x: Tensor, unary: Tensor | None, tables: Tensor, edges: Tensor) -> Tensor:
    """u_i + sum_j T_ij x_j with T_ji = T_ij', for ``tables`` (1 or images, m, L, L)."""
    i, j = edges.long().unbind(-1)
    y = torch.zeros_like(x).index_add(-2, i, matmul(tables, x[:, j].unsqueeze(-1)).squeeze(-1))
    y = y.index_add(-2, j, matmul(x[:, i].unsqueeze(-2), tables).squeeze(-2))
    return y if unary is None else y + unary


def edge_inner(a: Tensor, b: Tensor, turned: float, edges: Tensor) -> Tensor:
    """<a_i, b_j> + turned <a_j, b_i> of each edge (i, j), (images, m)."""
    i, j = edges.long().unbind(-1)
    return (a[:, i] * b[:, j]).sum(-1) + turned * (a[:, j] * b[:, i]).sum(-1)


def edge_outer(a: Tensor, b: Tensor, edges: Tensor) -> Tensor:
    """a_i b_j' + b_i a_j' of each edge (i, j), (images, m, L, L)."""
    i, j = edges.long().unbind(-1)
    outer = lambda left, right: left.unsqueeze(-1) * right.unsqueeze(-2)  # noqa: E731
    return outer(a[:, i], b[:, j]) + outer(b[:, i], a[:, j])
