"""Rounding of a point of the simplices to labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fwcrf.energy import Energy, inner, linear
from fwcrf.torch_ops.layout import argmax
from fwcrf.torch_ops.native import matmul

Rounding = Callable[[Energy, Tensor], Tensor]

# Largest number of variables for a dense matrix of P and node-by-node descent.
_SMALL = 2048


def nearest(x: Tensor) -> Tensor:
    """The most likely label of each node: the nearest vertex of its simplex. ``(*batch, n)``."""
    return argmax(x)


def get(rounding: str | Rounding) -> Rounding:
    """The rounding function named "nearest" or "bcd"; a function (E, x) is returned unchanged."""
    if callable(rounding):
        return rounding
    if rounding not in _NAMED:
        raise ValueError(
            f"rounding={rounding!r} is not known; expected {', '.join(_NAMED)} or a function (E, x)."
        )
    return _NAMED[rounding]


@torch.no_grad()
def bcd(f: Energy, x: Tensor, *, max_applications: int = 200, restarts: int = 0, seed: int = 0) -> Tensor:
    """Block coordinate descent from x to labels: E of the labels is not above E(x), up to rounding error.

    Nodes move to their best label until no node can gain by moving alone, or P has been applied
    ``max_applications`` times. Small problems (up to 2048 variables) move one node at a time, with the matrix
    of P. Large problems move all nodes that would gain together, if that lowers E: one application of P
    computes the change. Otherwise a random half of them moves, and so on down to one node. Nodes inside
    their simplex are always rounded, beyond ``max_applications`` if necessary.

    A sparse graph moves one node at a time in native code, in at most ``max_applications`` sweeps. Then it
    perturbs a region that ``seed`` fixes, descends again and keeps the better labels, ``restarts`` times.

    E is linear in each node if P has no self-edges. With self-edges, nodes at a label still move only if E
    falls, but a node that could gain may be missed.
    """
    labels = f.pairwise.descend(f.unary, x, max_sweeps=max_applications, restarts=restarts, seed=seed)
    if labels is not None:
        return labels
    if restarts:
        raise ValueError(
            f"restarts={restarts} with {type(f.pairwise).__name__}; expected 0 except for sparse graphs."
        )
    if f.unary.shape[-2] * f.unary.shape[-1] <= _SMALL:
        return _one_by_one(f, x, max_sweeps=max_applications)
    return _together(f, x, max_applications, seed)


def _one_by_one(f: Energy, x: Tensor, max_sweeps: int) -> Tensor:
    batch, (n, num_labels) = x.shape[:-2], x.shape[-2:]
    P = f.pairwise.to_dense().to(x).expand(*batch, n * num_labels, n * num_labels)
    columns = P.unflatten(-1, (n, num_labels)).unflatten(-3, (n, num_labels))  # (*batch, n, L, n, L)
    vertices = torch.eye(num_labels, dtype=x.dtype, device=x.device)
    x = x.clone()
    grad = f.grad(x)
    for _ in range(max_sweeps):
        moved = False
        for i in range(n):
            block = columns[..., i, :, i, :]  # (*batch, L, L), the self-edges of node i
            outside = grad[..., i, :] - matmul(block, x[..., i, :, None]).squeeze(-1)
            cost = outside + 0.5 * block.diagonal(dim1=-2, dim2=-1)
            best = cost.argmin(-1, keepdim=True)
            # A node changes its label only for a strictly better one, so that ties do not cycle.
            now = cost.gather(-1, x[..., i, :].argmax(-1, keepdim=True))
            stay = (x[..., i, :].amax(-1, keepdim=True) == 1) & (now <= cost.gather(-1, best))
            target = torch.where(stay, x[..., i, :], vertices[best.squeeze(-1)])
            d = target - x[..., i, :]
            if d.any():
                moved = True
                x[..., i, :] = target
                grad = grad + matmul(columns[..., i, :], d[..., None, :, None]).squeeze(-1)
        if not moved:
            break
    return nearest(x)


def _together(f: Energy, x: Tensor, max_applications: int, seed: int) -> Tensor:
    n, num_labels = x.shape[-2:]
    generator = torch.Generator("cpu").manual_seed(seed)
    grad = f.grad(x)
    size = torch.full(
        x.shape[:-2], n, dtype=torch.int64, device=x.device
    )  # most nodes to move at once, per image
    refused = torch.zeros(x.shape[:-1], dtype=torch.bool, device=x.device)  # failed as a single move
    applications = 1
    while True:
        p = torch.nn.functional.one_hot(grad.argmin(-1), num_labels).to(x)
        d = p - x
        gain = -torch.where(d == 0, 0.0, d * grad).sum(-1)  # of each node, if no other node moves
        scale = torch.where(torch.isinf(grad), 0.0, grad).abs().amax(-1)
        inside = x.amax(-1) < 1
        wants = inside | ((gain > 4 * torch.finfo(x.dtype).eps * scale) & ~refused)
        if applications >= max_applications:
            wants = inside
        if not wants.any():
            return nearest(x)
        order = torch.rand(wants.shape, generator=generator, dtype=torch.float32, device="cpu").to(x)
        order = order.masked_fill(~wants, 2.0)
        moves = wants & (order.argsort(-1).argsort(-1) < size.unsqueeze(-1))
        d = torch.where(moves.unsqueeze(-1), d, 0.0)
        change = f.hessian(d)
        applications += 1
        lower = linear(grad, d) + 0.5 * inner(d, change) <= 0
        single = size == 1
        accept = moves & (lower.unsqueeze(-1) | (single.unsqueeze(-1) & inside))
        moved = accept.any(-1)
        x = torch.where(accept.unsqueeze(-1), p, x)
        grad = torch.where(moved[..., None, None], grad + change, grad)
        refused = (refused & ~moved.unsqueeze(-1)) | (moves & (single & ~moved).unsqueeze(-1))
        size = torch.where(moved, 2 * size, torch.minimum(size, wants.sum(-1)) // 2).clamp(1, n)


def _nearest(f: Energy, x: Tensor) -> Tensor:
    return nearest(x)


_NAMED: dict[str, Rounding] = {"nearest": _nearest, "bcd": bcd}
