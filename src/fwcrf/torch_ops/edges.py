"""Sums over the edges of a graph as torch operators.

There are two pairs of operators, and each pair is closed under derivatives: sums weighted by a number per
edge go with inner products over edges, sums weighted by a table per edge with outer products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops import edges_torch
from fwcrf.torch_ops.native import (
    NativeOperator,
    check_finite,
    differentiated,
    empty,
    matmul,
    register,
    threads_for,
)

Graph = tuple[Tensor, Tensor, Tensor, Tensor]  # first, neighbor, slot, edges: see adjacency


def edge_sum(
    x: Tensor,  # (images, n, L)
    unary: Tensor | None,  # (images, n, L)
    weight: Tensor,  # (1 or images, m or 1)
    matrix: Tensor | None,  # (1 or images, L, L)
    potts: bool,
    turned: float,
    graph: Graph,
) -> Tensor:
    """u + (K x) M with K_ij = weight and K_ji = turned weight for an edge (i, j), and M' = turned M.

    M is the identity, 1 - identity (``potts``) or ``matrix``.
    """
    arguments = (x, unary, weight, matrix, potts, turned, *graph, True)
    return (_Sum.apply if differentiated(x, unary, weight, matrix) else _sum)(*arguments)  # type: ignore


def table_sum(x: Tensor, unary: Tensor | None, tables: Tensor, graph: Graph) -> Tensor:
    """u_i + the sum of T_ij x_j over edges, with ``tables`` (1 or images, m, L, L): T_ji = T_ij'."""
    arguments = (x, unary, tables, *graph, True)
    return (_Tables.apply if differentiated(x, unary, tables) else _tables)(*arguments)  # type: ignore


def _register(
    name: str,
    portable: Callable[..., Tensor],
    native: Callable[..., Tensor],
    batched: int,
    fake: Callable[..., Tensor] | None = None,
) -> NativeOperator:
    """An operator whose first ``batched`` arguments may be batches under vmap; the graph may not."""

    def rule(info: Any, in_dims: Any, x: Tensor, *rest: Any) -> tuple[Tensor, int]:
        if any(d is not None for d in in_dims[batched:]):
            raise ValueError("vmap over a graph takes batches of x and of potentials, not of edges.")
        images = x.shape[0] if in_dims[0] is None else x.movedim(in_dims[0], 0).shape[1]

        def flat(t: Tensor | None, dim: int | None) -> Tensor | None:
            """A tensor (1 or images, ...) under vmap as (vmapped * images, ...)."""
            if t is None:
                return None
            t = t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            return t.expand(-1, images, *[-1] * (t.dim() - 2)).flatten(0, 1)

        tensors = [flat(t, d) for t, d in zip((x, *rest)[:batched], in_dims[:batched], strict=True)]
        out = operator.registered(*tensors, *rest[batched - 1 :])
        return out.unflatten(0, (info.batch_size, images)), 0

    operator = register(name, portable, native, fake=fake, batched=rule)
    return operator


def _ready(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.detach().contiguous()


# --- a weight per edge -------------------------------------------------------------------------


def _sum_portable(
    x: Tensor,
    unary: Tensor | None,
    weight: Tensor,
    matrix: Tensor | None,
    potts: bool,
    turned: float,
    first: Tensor,
    neighbor: Tensor,
    slot: Tensor,
    edges: Tensor,
    checked: bool,
) -> Tensor:
    if checked:
        check_finite(x, "x")
    return edges_torch.edge_sum(x, unary, weight, matrix, potts, turned, edges)


def _sum_native(x, unary, weight, matrix, potts, turned, first, neighbor, slot, edges, checked):  # type: ignore
    x = x.detach().contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        work = x[0].numel() * (2 if matrix is None else 2 + x.shape[-1]) + 2 * slot.numel() * x.shape[-1]
        finite = _core.edge_sum(
            x, _ready(unary), _ready(weight), _ready(matrix), potts, turned, first, neighbor, slot, out,
            threads_for(work),
        )  # fmt: skip
        if checked and not finite:
            check_finite(x, "x")
    return out


def _inner_portable(a: Tensor, b: Tensor, turned: float, edges: Tensor) -> Tensor:
    return edges_torch.edge_inner(a, b, turned, edges)


def _inner_native(a, b, turned, edges):  # type: ignore
    out = a.new_empty(a.shape[0], len(edges))
    if out.numel():
        work = 4 * len(edges) * a.shape[-1]
        _core.edge_inner(_ready(a), _ready(b), edges, turned, out, threads_for(work))
    return out


def _inner_fake(a, b, turned, edges):  # type: ignore
    return a.new_empty(a.shape[0], edges.shape[0])


_sum = _register("edge_sum", _sum_portable, _sum_native, 4)
_inner = _register("edge_inner", _inner_portable, _inner_native, 2, _inner_fake)


class _Sum(torch.autograd.Function):
    """u + (K x) M, linear in each of x, u, the weights and M. M' = turned M, so that P is symmetric."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, unary, weight, matrix, potts, turned, first, neighbor, slot, edges, checked):  # type: ignore
        return _sum(x, unary, weight, matrix, potts, turned, first, neighbor, slot, edges, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, _, weight, matrix, ctx.potts, ctx.turned, *graph, _ = inputs
        learned = ctx.needs_input_grad[2] or ctx.needs_input_grad[3]
        ctx.save_for_backward(x if learned else None, weight, matrix, *graph)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, matrix, *graph = ctx.saved_tensors
        grads: list[Tensor | None] = [None] * 11
        if ctx.needs_input_grad[0]:
            grads[0] = _Sum.apply(g, None, weight, matrix, ctx.potts, ctx.turned, *graph, False)
            if matrix is None and not ctx.potts:
                grads[0] = ctx.turned * grads[0]
        if ctx.needs_input_grad[1]:
            grads[1] = g
        if ctx.needs_input_grad[2]:
            over_labels = (
                g.sum(-1, keepdim=True) - g if ctx.potts else g if matrix is None else matmul(g, matrix.mT)
            )
            assert x is not None
            found = _Inner.apply(over_labels, x, ctx.turned, *graph)
            grads[2] = found.sum_to_size(weight.shape)
        if ctx.needs_input_grad[3]:
            y = _Sum.apply(x, None, weight, None, False, ctx.turned, *graph, False)
            grads[3] = matmul(y.mT, g).sum_to_size(matrix.shape)  # type: ignore[union-attr]
        return tuple(grads)


class _Inner(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b, turned, first, neighbor, slot, edges):  # type: ignore
        return _inner(a, b, turned, edges)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        a, b, ctx.turned, *graph = inputs
        ctx.save_for_backward(a, b, *graph)

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        a, b, *graph = ctx.saved_tensors
        along = lambda x: _Sum.apply(x, None, h, None, False, ctx.turned, *graph, False)  # noqa: E731
        of_a = along(b) if ctx.needs_input_grad[0] else None
        of_b = ctx.turned * along(a) if ctx.needs_input_grad[1] else None
        return of_a, of_b, None, None, None, None, None


# --- a table per edge --------------------------------------------------------------------------


def _tables_portable(
    x: Tensor,
    unary: Tensor | None,
    tables: Tensor,
    first: Tensor,
    neighbor: Tensor,
    slot: Tensor,
    edges: Tensor,
    checked: bool,
) -> Tensor:
    if checked:
        check_finite(x, "x")
    return edges_torch.table_sum(x, unary, tables, edges)


def _tables_native(x, unary, tables, first, neighbor, slot, edges, checked):  # type: ignore
    x = x.detach().contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        work = x[0].numel() + slot.numel() * x.shape[-1] ** 2
        given = x, _ready(unary), _ready(tables)
        finite = _core.table_sum(*given, first, neighbor, slot, out, threads_for(work))
        if checked and not finite:
            check_finite(x, "x")
    return out


def _outer_portable(a: Tensor, b: Tensor, edges: Tensor) -> Tensor:
    return edges_torch.edge_outer(a, b, edges)


def _outer_native(a, b, edges):  # type: ignore
    out = empty((a.shape[0], len(edges), a.shape[-1], a.shape[-1]), a.dtype)
    if out.numel():
        _core.edge_outer(_ready(a), _ready(b), edges, out, threads_for(2 * out[0].numel()))
    return out


def _outer_fake(a, b, edges):  # type: ignore
    return a.new_empty(a.shape[0], edges.shape[0], a.shape[-1], a.shape[-1])


_tables = _register("table_sum", _tables_portable, _tables_native, 3)
_outer = _register("edge_outer", _outer_portable, _outer_native, 2, _outer_fake)


class _Tables(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, unary, tables, first, neighbor, slot, edges, checked):  # type: ignore
        return _tables(x, unary, tables, first, neighbor, slot, edges, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, _, tables, *graph, _ = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[2] else None, tables, *graph)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, tables, *graph = ctx.saved_tensors
        grads: list[Tensor | None] = [None] * 8
        if ctx.needs_input_grad[0]:
            grads[0] = _Tables.apply(g, None, tables, *graph, False)
        if ctx.needs_input_grad[1]:
            grads[1] = g
        if ctx.needs_input_grad[2]:
            grads[2] = _Outer.apply(g, x, *graph).sum_to_size(tables.shape)
        return tuple(grads)


class _Outer(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b, first, neighbor, slot, edges):  # type: ignore
        return _outer(a, b, edges)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        a, b, *graph = ctx.saved_tensors
        of_a = _Tables.apply(b, None, h, *graph, False) if ctx.needs_input_grad[0] else None
        of_b = _Tables.apply(a, None, h, *graph, False) if ctx.needs_input_grad[1] else None
        return of_a, of_b, None, None, None, None
