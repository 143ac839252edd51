"""Rounding of a point of the simplices to labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fwcrf.energy import Energy, inner, linear
from fwcrf.pairwise import products
from fwcrf.torch_ops.layout import argmax
from fwcrf.torch_ops.native import matmul

Rounding = Callable[[Energy, Tensor], Tensor]

# Largest number of variables for a dense matrix of P and node-by-node descent.
_SMALL = 2048


def nearest(x: Tensor) -> Tensor:
    """The most likely label of each node: the nearest vertex of its simplex. ``(*batch, n)``."""
    return argmax(x)


def get(rounding: str | Rounding) -> Rounding:
    """The rounding function named "nearest", "bcd" or "merge"; a function (E, x) is returned unchanged."""
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


@torch.no_grad()
def merge(f: Energy, x: Tensor) -> Tensor:
    """The nearest labels, where whole labels take over others if that lowers E; ``(*batch, n)``.

    For vertices x and P = sum_c K_c (x) M_c, the products Q_c[s, t] = <x_s, K_c x_t> of all pairs of labels
    come from one application of P. Label t in place of s changes E by

        sum over the nodes of s of (u_t - u_s)
            + sum_c (sum_r Q_c[s, r] (M_c[t, r] - M_c[s, r])
                     + Q_c[s, s] (M_c[s, s] + M_c[t, t] - 2 M_c[s, t]) / 2),

    which is sum (u_t - u_s) - w <x_s, K x_t> for Potts with weight w. The best change is made first. The
    products of merged labels are sums of known ones, so that any number of merges takes one application of P.
    For Potts, parts of labels follow from the same application: see ``_in_one_direction``. E never rises, up
    to rounding errors.
    """
    labels = nearest(x)
    num_labels = x.shape[-1]
    vertices = torch.nn.functional.one_hot(labels, num_labels).to(x)
    terms, applied = _label_products(f, vertices, "rounding='merge'", "Use rounding='bcd'.")
    becomes = _mergers_of_images(f, vertices, terms)
    flat = labels.reshape(-1, x.shape[-2])
    noise = _noise(x)
    unary = f.unary.to(x).expand_as(x)
    taken = torch.stack([of[each] for of, each in zip(becomes, flat, strict=True)])
    if applied is None:
        return taken.view(labels.shape)
    rows = (unary.flatten(0, -3), applied.flatten(0, -3)) if x.dim() > 2 else (unary[None], applied[None])
    moved = [
        _in_one_direction(each, u, _neighbours(y, of), noise)
        for each, u, y, of in zip(taken, *rows, becomes, strict=True)
    ]
    return torch.stack(moved).view(labels.shape)


def merged(f: Energy, x: Tensor) -> tuple[Tensor, Tensor]:
    """x after ``merge``'s mergers of whole labels, and the gradient of f there, ``(*batch, n, L)`` both.

    For any x whose rows sum to 1: label t takes x_s, and E changes by the same formula, and never rises.
    With Potts the gradient follows from the same application of P; otherwise it takes another one.
    """
    terms, applied = _label_products(f, x, "a solver with merge=True", "Use merge=False.")
    with torch.no_grad():
        becomes = _mergers_of_images(f, x, terms)

    def gathered(rows: Tensor, gather: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        flat = rows.reshape(-1, *rows.shape[-2:])
        return torch.stack([gather(one, of) for one, of in zip(flat, becomes, strict=True)]).view(rows.shape)

    y = gathered(x, lambda one, of: torch.zeros_like(one).index_add(-1, of, one))
    if applied is None:
        return y, f.grad(y)
    near = gathered(applied, _neighbours)
    return y, near.sum(-1, keepdim=True) - near + f.unary.to(x)


def _label_products(
    f: Energy, x: Tensor, what: str, remedy: str
) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
    found = f.pairwise.label_products(x)
    if found is None:
        raise ValueError(
            f"{what} with {type(f.pairwise).__name__}; expected kernels with matrices over labels: a dense "
            f"model, or a graph whose edges share a symmetric matrix. {remedy}"
        )
    return found


def _noise(x: Tensor) -> float:
    return 16 * torch.finfo(x.dtype).eps


def _mergers_of_images(f: Energy, x: Tensor, terms: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    """The label that each label of each image becomes."""
    num_labels = x.shape[-1]
    unary = f.unary.to(x).expand_as(x)
    forbidden = torch.isinf(unary)
    costs = products(x, unary.masked_fill(forbidden, 0.0))
    costs = costs.masked_fill(products(x, forbidden.to(x)) > 0, torch.inf)
    square = (-1, num_labels, num_labels)
    matrices = torch.stack([M for _, M in terms]).cpu()
    of_images = torch.stack([Q.expand_as(costs).reshape(square) for Q, _ in terms], 1).cpu()
    return [
        _mergers(U, Q, matrices, _noise(x)).to(x.device)
        for U, Q in zip(costs.reshape(square).cpu(), of_images, strict=True)
    ]


def _mergers(costs: Tensor, Q: Tensor, M: Tensor, noise: float) -> Tensor:
    """The label that each label becomes, ``(L,)``; costs[s, t] are of the nodes of s with label t."""
    num_labels = len(costs)
    becomes = torch.arange(num_labels, device=costs.device)
    costs, Q = costs.clone(), Q.clone()
    diagonal = M.diagonal(dim1=-2, dim2=-1)
    apart = 0.5 * (diagonal.unsqueeze(-1) + diagonal.unsqueeze(-2)) - M
    while True:
        now = Q @ M  # [s, t]: the edges of the nodes of s, if these had label t
        own = Q.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        edges = now - now.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) + own * apart
        change = costs - costs.diagonal().unsqueeze(-1) + edges.sum(0)
        # Sums of single precision: a smaller change may be none.
        size = torch.where(torch.isinf(costs), 0.0, costs.abs()) + now.abs().sum(0)
        change = change.nan_to_num(0.0, posinf=torch.inf, neginf=0.0) + noise * size
        change.diagonal().zero_()
        best = int(change.argmin())
        if not change.view(-1)[best] < 0:
            return becomes
        s, t = divmod(best, num_labels)
        becomes[becomes == s] = t
        for row in (costs, *Q):
            row[t] += row[s]
            row[s] = 0
        Q[:, :, t] += Q[:, :, s]
        Q[:, :, s] = 0


def _neighbours(applied: Tensor, becomes: Tensor) -> Tensor:
    """K x of merged labels, ``(n, L)``, from P x = K 1 - K x of the labels before, with K = sum w_c K_c."""
    num_labels = applied.shape[-1]
    sums = applied.sum(-1, keepdim=True) / (num_labels - 1)
    return torch.zeros_like(applied).index_add(-1, becomes, sums - applied)


def _in_one_direction(labels: Tensor, unary: Tensor, near: Tensor, noise: float) -> Tensor:
    """Labels ``(n,)`` after moves of all nodes that gain by themselves, no label both losing and gaining.

    With d the change of the vertices, E changes by <grad, d> - sum_l <d_l, K d_l> / 2. If no label has both
    entries above and below 0, and no entry of K is below 0, the sum is at least 0: all nodes that gain alone
    may move together, and so may any part of a label, such as a connected component, that gains in sum. The
    nodes that gain alone are the best part.
    """
    num_labels = unary.shape[-1]
    grad = unary - near
    now = grad.gather(-1, labels.unsqueeze(-1))
    size = torch.where(torch.isinf(unary), 0.0, unary).abs().amax(-1, keepdim=True) + near.sum(
        -1, keepdim=True
    )
    gains = (now - grad - noise * size).clamp(min=0)  # of each node and label
    of_pairs = torch.zeros(num_labels, num_labels, dtype=torch.float64, device="cpu")
    best, to = gains.max(-1)
    of_pairs = of_pairs.view(-1).index_add(0, (labels * num_labels + to).cpu(), best.double().cpu())
    gaining = _gaining(of_pairs.view(num_labels, num_labels)).to(labels.device)
    gains = gains.masked_fill(~gaining | gaining[labels].unsqueeze(-1), 0.0)
    best, to = gains.max(-1)
    return torch.where(best > 0, to, labels)


def _gaining(gains: Tensor) -> Tensor:
    """Labels S, ``(L,)``, with a large sum of gains[s, t] over s outside and t inside S, by local search."""
    inside = torch.zeros(len(gains), dtype=torch.bool, device=gains.device)
    while True:
        # A label that enters S gains from labels outside, and no longer gives to labels inside.
        change = gains[~inside].sum(0) - gains[:, inside].sum(-1)
        change = torch.where(inside, -change, change)
        best = int(change.argmax())
        if not change[best] > 0:
            return inside
        inside[best] = ~inside[best]


def _nearest(f: Energy, x: Tensor) -> Tensor:
    return nearest(x)


_NAMED: dict[str, Rounding] = {"nearest": _nearest, "bcd": bcd, "merge": merge}
