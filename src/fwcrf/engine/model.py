"""The native model: P x + u with every kernel, the compatibility and the unary in one operation.

Steps of a solver that map P x + u row by row, each an ``Update``, run natively too, all in one call. Results
differ from the generic path by float rounding, and in float32 by up to 1e-4 of the largest entry of a spatial
kernel of three and more pixels: the engine computes such a kernel on a coarser grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Potts
from fwcrf.engine.limits import (
    MODELS,
    Refusal,
    Task,
    Terms,
    part,
    refuse_arrays,
    refuse_parts,
    refuse_task,
)
from fwcrf.engine.prune import MessageBound, prune
from fwcrf.engine.tables import slopes, tables
from fwcrf.engine.update import APPLY, DERIVATIVE, Dual, Map, Start, Update
from fwcrf.kernels.lattice import ORDERS, TAP, Lattice
from fwcrf.kernels.operator import Operator, check_values
from fwcrf.kernels.separable import Separable
from fwcrf.torch_ops.native import check_finite, empty, empty_like, matmul, threads_for
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import project_onto_simplex, softmax

_MOST_STEPS = 4096  # of one native call, whose arguments take memory for each step
_ORACLES = {Map.SOFTMAX: softmax, Map.PROJECT: project_onto_simplex}


class Settings(NamedTuple):
    """Settings of updates as tensors: the regularizer's weight and the step sizes; None if numbers."""

    weight: Tensor | None = None  # lambda: the scale of every update is -1 / lambda
    steps: Tensor | None = None  # (number of updates,)

    __repr__ = in_one_line

    @property
    def learned(self) -> bool:
        """True if a derivative in one of them may be asked for."""
        a, b = self
        return (a is not None and a.requires_grad) or (b is not None and b.requires_grad)


NUMBERS = Settings()


@dataclass(frozen=True, eq=False)
class Model:
    """The terms (K_c, M_c) of P, ready for native code; ``Model.of`` makes one."""

    terms: Terms
    native: Any
    n: int
    batch_shape: torch.Size
    dtype: torch.dtype
    symmetric: bool
    potts: bool
    methods: Sequence[str]
    learned: bool  # a table of a kernel requires gradients: bandwidths, or features of the image

    @staticmethod
    def of(terms: Terms) -> Model | Refusal:
        """The native model of the terms, or the reason why there is none."""
        parts = [part(operator) for operator, _ in terms]
        if refusal := refuse_parts(parts):
            return refusal
        dtype, n = parts[0].example.dtype, parts[0].n
        native, learned = MODELS[dtype](), False
        for p in parts:
            for t in p.tables:
                learned = learned or (t is not None and t.requires_grad)
            if isinstance(p.kernel, Lattice):
                _add_lattice(native, p.kernel)
            elif isinstance(p.kernel, Separable):
                _add_grid(native, p.kernel, p.shift)
        batches = {p.batch_shape for p in parts} - {torch.Size()}
        symmetric = all(_is_symmetric(p.kernel) for p in parts)
        potts = all(_is_number(compat) for _, compat in terms)
        batch = batches.pop() if batches else torch.Size()
        return Model(terms, native, n, batch, dtype, symmetric, potts, [p.method for p in parts], learned)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles build the native model again."""
        return Model.of, (self.terms,)

    def refuse(
        self,
        x: Tensor,
        unary: Tensor | None,
        updates: Sequence[Update] = (),
        settings: Settings = NUMBERS,
    ) -> Refusal | None:
        """The reason why the model cannot apply P to x, or run the updates from it; None if it can."""
        if refusal := refuse_arrays(self.batch_shape, self.dtype, x, unary):
            return refusal
        labels = x.shape[-1]
        # Matrices over many labels would be large, and are refused.
        few = self.potts or labels <= MODELS[self.dtype].most_labels()
        extra = self.learned and torch.is_grad_enabled()
        if extra and not updates:
            return Refusal("bandwidths or features of the image are learned")
        extra = extra or (torch.is_grad_enabled() and settings.learned)
        learned = extra or (few and _learned(x, unary, self._weights(x)))
        if refusal := refuse_task(Task(labels, self.dtype, self.potts, updates, learned, self.symmetric)):
            return refusal
        if unary is not None and any(u.unary != 1 for u in updates) and not torch.isfinite(unary.sum()):
            return Refusal("an update that does not read the unary would allow forbidden labels")
        return None

    def apply(self, x: Tensor, unary: Tensor | None) -> Tensor:
        """P x + u; without a unary, P x."""
        check_values(x, self.n, self.batch_shape)
        weights = self._weights(x)
        if _learned(x, unary, weights):
            return _Apply.apply(self, x, unary, *weights)  # type: ignore[return-value]
        return self.applied(x, unary, weights)

    def run(
        self, x: Tensor | None, unary: Tensor, updates: Sequence[Update], settings: Settings = NUMBERS
    ) -> Tensor:
        """The point to which the updates lead from x, or from softmax(-unary) if x is None.

        ``settings`` are tensors of which the updates have the values.
        """
        check_values(unary, self.n, self.batch_shape)
        weights = self._weights(unary)
        learned = _learned(x, unary, weights)
        partial = learned and any([u.step != 1 for u in updates])
        if partial or (torch.is_grad_enabled() and (self.learned or settings.learned)):
            start = softmax(unary, -1.0) if x is None else x
            return run_step_by_step(self, updates, start, unary, settings, weights)
        dual = any(u.lean != 0 or u.dual for u in updates)
        if x is None and dual:
            x = softmax(unary, -1.0)

        def go(x: Tensor | None, unary: Tensor, *, bounded: bool) -> tuple[Tensor, MessageBound]:
            if learned:
                end, bound = _Run.apply(self, updates, bounded, x, unary, *weights)
                return end, MessageBound(*bound.tolist())
            end = empty(unary.shape, unary.dtype)
            w = _first_dual(x, updates) if dual and x is not None else None
            start, x = (_softmax_start(end), unary) if x is None else (None, x)
            bound = MessageBound(0.0, 0.0)
            for first in range(0, len(updates), _MOST_STEPS):
                some = updates[first : first + _MOST_STEPS]
                outs = [end] * len(some)
                found = self.call(x, unary, weights, some, outs, start=start, dual=w, bounded=bounded)[1]
                bound = MessageBound(*map(max, bound, found))
                start, x = None, end
            return end, bound

        lanes = self.native.lanes()
        pruned = None if dual else prune(x, unary, weights, updates, exact=learned, lanes=lanes)
        if pruned is not None:
            end, bound = go(pruned.x, pruned.unary, bounded=True)
            if pruned.holds(bound):
                return pruned.all_labels(end)
        return go(x, unary, bounded=False)[0]

    def _weights(self, x: Tensor) -> list[Tensor]:
        """The weight of each Potts term as a number, and of every other term its matrix."""
        labels = x.shape[-1]
        return [(c.weight if _is_number(c) else c.matrix(labels)).to(x) for _, c in self.terms]  # type: ignore

    def applied(self, x: Tensor, unary: Tensor | None, weights: Sequence[Tensor]) -> Tensor:
        """P x + u with these weights, without gradients."""
        out = empty(x.shape, x.dtype)
        self.call(x, unary, weights, [APPLY], [out])
        return out

    def call(
        self,
        x: Tensor,
        unary: Tensor | None,
        weights: Sequence[Tensor],
        updates: Sequence[Update],
        outs: Sequence[Tensor | None],
        others: Sequence[Tensor] = (),
        total: Tensor | None = None,
        *,
        start: Start | None = None,
        dual: Tensor | None = None,
        slopes: bool = False,
        bounded: bool = False,
        checked: bool = True,
    ) -> tuple[Tensor | None, MessageBound]:
        """Fill ``outs``, one update after the other, from x or from ``start``.

        ``total`` becomes the sum of all derivatives, the one of ``start`` included; the last update may then
        do without an array of its own. Returns, with ``slopes``, the derivative of <other, P x> in each
        weight, summed over the updates; and, if ``bounded``, the bound on the messages of Potts terms.
        """
        labels, terms = x.shape[-1], len(weights)
        flat = lambda t: None if t is None else t.detach().contiguous().view(-1, *x.shape[-2:])  # noqa: E731
        potts = np.array([0.0 if w.dim() else w.detach().numpy() for w in weights], dtype=np.float64)
        # No matrix for Potts: with 70,000 labels it would take 20 GB.
        matrices = [w.detach().contiguous() if w.dim() else None for w in weights]
        found = x.new_zeros(terms, labels, labels, dtype=torch.float64) if slopes else None
        begin = start and (start.map, start.scale, flat(start.other), flat(start.out))
        finite, *bound = self.native.run(
            flat(x), begin, flat(unary), potts, matrices, np.array(updates, dtype=np.float64),
            [flat(t) for t in outs], [flat(t) for t in others], flat(total), flat(dual), found,
            bounded, threads_for(40 * terms * x.numel()),
        )  # fmt: skip
        if checked and not finite:
            check_finite(x, "x")
        return found, MessageBound(*bound)

    def term_by_term(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """P x by operations that autograd sees through."""
        parts = []
        for (operator, _), w in zip(self.terms, weights, strict=True):
            y = operator.apply(x)
            parts.append(matmul(y, w) if w.dim() else Potts(w).apply(y))
        return sum(parts[1:], parts[0])


class _Apply(torch.autograd.Function):
    """P x + u. P is symmetric: backward applies P again, and computes derivatives in the weights too."""

    @staticmethod
    def forward(ctx: Any, model: Model, x: Tensor, unary: Tensor | None, *weights: Tensor) -> Tensor:
        ctx.model, ctx.has_unary = model, unary is not None
        ctx.learned = any(ctx.needs_input_grad[3:])
        ctx.save_for_backward(x if ctx.learned else None, *weights)
        return model.applied(x, unary, weights)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, *weights = ctx.saved_tensors
        of_unary = g if ctx.has_unary else None
        if torch.is_grad_enabled():
            of_x = _Apply.apply(ctx.model, g, None, *weights)
            of_weights: list[Tensor | None] = [None] * len(weights)
            if ctx.learned:
                learned = [i for i, needed in enumerate(ctx.needs_input_grad[3:]) if needed]
                y = ctx.model.term_by_term(x, weights)
                found = torch.autograd.grad(y, [weights[i] for i in learned], g, create_graph=True)
                for i, slope in zip(learned, found, strict=True):
                    of_weights[i] = slope
            return None, of_x, of_unary, *of_weights
        # Gradients may overflow on purpose (loss scaling), so their values are not checked.
        of_x = empty(g.shape, g.dtype)
        others = [x] if ctx.learned else []
        slopes, _ = ctx.model.call(
            g, None, weights, [APPLY], [of_x], others, slopes=ctx.learned, checked=False
        )
        return None, of_x, of_unary, *_slopes(slopes, weights, ctx.needs_input_grad[3:])


class _Run(torch.autograd.Function):
    """Full steps x_{k+1} = map(scale (P x_k + u)), all of them, and the bound on their messages.

    From softmax(-u) if x is None. The backward pass is one native call too: with J_k the derivative of the
    map of step k, d_k = scale J_k g_{k+1} is its part of the unary's gradient, and g_k = P d_k.
    """

    @staticmethod
    def forward(
        ctx: Any,
        model: Model,
        updates: Sequence[Update],
        bounded: bool,
        x: Tensor | None,
        unary: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.model, ctx.updates, ctx.from_unary = model, updates, x is None
        first, *points = empty_like(unary, len(updates) + 1)
        start, begin = (_softmax_start(first), first) if x is None else (None, x)
        _, bound = model.call(
            unary if x is None else x, unary, weights, updates, points, start=start, bounded=bounded
        )
        ctx.save_for_backward(begin, unary, *weights, *points)
        found = torch.tensor(bound, dtype=torch.float64, device="cpu")
        ctx.mark_non_differentiable(found)
        return points[-1], found

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        model, updates, terms = ctx.model, ctx.updates, len(ctx.model.terms)
        x, unary, *saved = ctx.saved_tensors
        weights, points = saved[:terms], [x, *saved[terms:]]
        if torch.is_grad_enabled():
            x = None if ctx.from_unary else x
            return None, None, None, *_again(model, updates, x, unary, weights, g, ctx.needs_input_grad[3:])
        d, of_unary = empty_like(g, 2)
        # From the last step back to the first, and then the gradient at the start, or through it.
        last, *back = [Update(DERIVATIVE[u.map], u.scale) for u in updates[::-1]]
        end = Update(Map.SOFTMAX_DERIVATIVE, -1.0) if ctx.from_unary else APPLY
        slopes, _ = model.call(
            g, None, weights, [*back, end], [*([d] * len(back)), None if ctx.from_unary else d],
            points[-2::-1], of_unary, start=Start(last.map, last.scale, points[-1], d),
            slopes=any(ctx.needs_input_grad[5:]), checked=False,
        )  # fmt: skip
        of_x = None if ctx.from_unary else d
        return None, None, None, of_x, of_unary, *_slopes(slopes, weights, ctx.needs_input_grad[5:])


def run_step_by_step(
    model: Model,
    updates: Sequence[Update],
    x: Tensor,
    unary: Tensor,
    settings: Settings,
    weights: Sequence[Tensor],
) -> Tensor:
    """The point to which the updates lead from x, with derivatives in settings and in tables of kernels."""
    given = [t for operator, _ in model.terms for t in tables(operator)]
    return _Steps.apply(model, updates, x, unary, *settings, *weights, *given)  # type: ignore[return-value]


class _Steps(torch.autograd.Function):
    """Steps x_{k+1} = x_k + a_k (p_k - x_k) to p_k = map(scale (P x_k + u)), a native call each.

    With J_k the derivative of the map at step k and g_k the gradient in x_k, d_k = a_k scale J_k g_{k+1} is
    the gradient in the unary, and g_k = (1 - a_k) g_{k+1} + P d_k. The gradient in a_k is
    <g_{k+1}, p_k - x_k>, and in lambda <d_k, v_k> with v_k the argument of the map. Rows of d_k sum to 0, so
    that v_k may be replaced by log p_k of a softmax, and by p_k of a projection.
    """

    @staticmethod
    def forward(
        ctx: Any,
        model: Model,
        updates: Sequence[Update],
        x: Tensor,
        unary: Tensor,
        weight: Tensor | None,
        steps: Tensor | None,
        *rest: Tensor,
    ) -> Tensor:
        weights = rest[: len(model.terms)]
        points, goals = [x], []
        for u in updates:
            p = empty(unary.shape, unary.dtype)
            model.call(points[-1], unary, weights, [u._replace(step=1.0)], [p])
            goals.append(p)
            points.append(p if u.step == 1 else torch.lerp(points[-1], p, u.step))
        ctx.model, ctx.updates = model, updates
        ctx.save_for_backward(unary, weight, steps, *points[:-1], *goals, *rest)
        return points[-1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        model, updates, count = ctx.model, ctx.updates, len(ctx.updates)
        unary, weight, steps, *saved = ctx.saved_tensors
        points, goals, rest = saved[:count], saved[count : 2 * count], saved[2 * count :]
        terms = len(model.terms)
        weights, needs = rest[:terms], ctx.needs_input_grad
        if torch.is_grad_enabled():
            settings = Settings(weight, steps)
            found = _steps_again(model, updates, points[0], unary, settings, rest, g, needs[2:])
            return None, None, *found
        of_unary, of_weight = torch.zeros_like(unary), g.new_zeros((), dtype=torch.float64)
        of_steps = g.new_zeros(count, dtype=torch.float64)
        of_matrices = g.new_zeros(terms, *[unary.shape[-1]] * 2, dtype=torch.float64)
        of_tables = [torch.zeros_like(t) for t in rest[terms:]]
        d, back = empty_like(g, 2)
        for k in reversed(range(count)):
            u, x, p = updates[k], points[k], goals[k]
            if needs[5]:
                of_steps[k] = _total(g, p - x)
            begin = Start(DERIVATIVE[u.map], u.step * u.scale, p, d)
            learned = any(needs[6 : 6 + terms])
            found, _ = model.call(
                g, None, weights, [APPLY], [back], [x] if learned else [], start=begin, slopes=learned,
                checked=False,
            )  # fmt: skip
            of_unary += d
            if found is not None:
                of_matrices += found
            if needs[4]:
                v = p.clamp(min=torch.finfo(p.dtype).tiny).log() if u.map == Map.SOFTMAX else p
                of_weight += _total(d, v)
            _add_slopes(of_tables, model, rest, needs[6 + terms :], x, d)
            g = back.clone() if u.step == 1 else torch.add(back, g, alpha=1 - u.step)
        return (
            None, None, g if needs[2] else None, of_unary if needs[3] else None,
            of_weight.to(weight) if needs[4] else None, of_steps.to(steps) if needs[5] else None,
            *_slopes(of_matrices, weights, needs[6 : 6 + terms]),
            *(t if need else None for t, need in zip(of_tables, needs[6 + terms :], strict=True)),
        )  # fmt: skip


def _add_slopes(
    totals: Sequence[Tensor],
    model: Model,
    rest: Sequence[Tensor],
    needs: Sequence[bool],
    x: Tensor,
    d: Tensor,
) -> None:
    """Add the derivatives of <d, P x> in the tables of kernels that need derivatives."""
    terms, first = len(model.terms), 0
    for (operator, _), w in zip(model.terms, rest[:terms], strict=False):
        last = first + len(tables(operator))
        if any(needs[first:last]):
            g = matmul(d, w) if w.dim() else Potts(w).apply(d)
            each = slopes(operator, rest[terms + first : terms + last], x, g)
            for total, slope in zip(totals[first:last], each, strict=True):
                total += slope
        first = last


def _steps_again(
    model: Model,
    updates: Sequence[Update],
    x: Tensor,
    unary: Tensor,
    settings: Settings,
    rest: Sequence[Tensor],
    g: Tensor,
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of ``_Steps``, differentiable, by operations that autograd sees through."""
    y = x
    for k, u in enumerate(updates):
        v = model.term_by_term(y, rest[: len(model.terms)]) + unary
        scaled = u.scale * v if settings.weight is None else v * (-1 / settings.weight.to(v))
        p = _ORACLES[u.map](scaled, 1.0)
        y = torch.lerp(y, p, u.step if settings.steps is None else settings.steps[k].to(y))
    given = (x, unary, *settings, *rest)
    inputs = [t for t, need in zip(given, needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(y, inputs, g, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def _total(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> over all entries, in float64."""
    return (a * b).sum(-1).sum(dtype=torch.float64)


def _again(
    model: Model,
    updates: Sequence[Update],
    x: Tensor | None,
    unary: Tensor,
    weights: Sequence[Tensor],
    g: Tensor,
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients, differentiable, by steps that autograd sees through."""
    y = softmax(unary, -1.0) if x is None else x
    for u in updates:
        y = _ORACLES[u.map](_Apply.apply(model, y, unary, *weights), u.scale)
    inputs = [t for t, need in zip((x, unary, *weights), needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(y, inputs, g, create_graph=True))
    return [next(found) if need else None for need in needed]


def _slopes(slopes: Tensor | None, weights: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
    if slopes is None:
        return [None] * len(weights)
    each = [s if w.dim() else s[0, 0] for s, w in zip(slopes, weights, strict=True)]
    return [s.to(w) if need else None for s, w, need in zip(each, weights, needed, strict=True)]


def _learned(x: Tensor | None, unary: Tensor | None, weights: Sequence[Tensor]) -> bool:
    """True if autograd records derivatives in the point, the unary or a weight."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, unary, *weights))


def _softmax_start(out: Tensor) -> Start:
    """softmax(-unary), given the unary."""
    return Start(Map.SOFTMAX, -1.0, None, out)


def _first_dual(x: Tensor, updates: Sequence[Update]) -> Tensor:
    """The dual variable before the first update."""
    w = empty(x.shape, x.dtype)
    if any(u.dual == Dual.LOGITS for u in updates):
        return torch.log(x, out=w).clamp_(min=math.log(torch.finfo(x.dtype).tiny))
    return w.zero_()


def _is_number(compat: Compatibility) -> bool:
    """True for Potts with one weight for all labels."""
    return isinstance(compat, Potts) and compat.weight.dim() == 0


def _is_symmetric(K: Operator) -> bool:
    if isinstance(K, Lattice):
        return K.slice is K.splat and K.blur == "symmetric"
    return isinstance(K, Separable) and K.left is K.right


def _add_lattice(native: Any, K: Lattice) -> None:
    images = math.prod(K.index.shape[:-2])
    given = (K.index, K.splat.detach(), K.slice.detach())
    index, splat, slice = (t.reshape(images, *t.shape[-2:]).contiguous() for t in given)
    shift = None if K.shift is None else K.shift.detach().reshape(images, -1).contiguous()
    native.add_lattice(index, splat, slice, K.neighbors, shift, TAP, K.identity, ORDERS[K.blur])


def _add_grid(native: Any, K: Separable, shift: Tensor | None) -> None:
    if shift is not None:
        shift = shift.detach().reshape(math.prod(shift.shape[:-1]), -1).contiguous()
    native.add_grid(list(K.shape), *K.banded, shift)  # type: ignore[misc]  # ``refuse_parts`` checks for None
