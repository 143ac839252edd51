"""P x + u of a dense model as one native operation: every kernel, the compatibility and the unary together.

Steps of a solver that map P x + u row by row, each a ``Move``, are taken natively too, all in one call.

It is an engine, not a model: ``fuse`` looks at the terms of P and answers with a ``Fused`` that computes the
same, or with None where some term has no part in it (exact kernels, other devices, bandwidths that are being
learned). Answers differ by float rounding, and in float32 by up to 1e-4 of the largest entry of a spatial
kernel of three and more pixels: that one is computed on a grid with fewer rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.bands import factors
from fwcrf.compatibility import Compatibility, Potts
from fwcrf.fewer import Reach, fewer
from fwcrf.finite import check_finite
from fwcrf.kernels.lattice import _ORDERS, _TAP, Lattice
from fwcrf.kernels.operator import Operator, Shifted, check_values
from fwcrf.kernels.ops import transformed
from fwcrf.kernels.separable import Separable
from fwcrf.memory import empty
from fwcrf.moves import ANSWER, MAPS, Before, Move, first_dual, numbers
from fwcrf.simplex import project_onto_simplex, softmax
from fwcrf.threads import threads_for

_MODELS = {torch.float32: _core.ModelF32, torch.float64: _core.ModelF64}
MAX_TERMS = 8
MAX_AXES = 8
_VECTORS = 4  # hold as many labels as the engine takes at a time


_ORACLES = {"softmax": softmax, "project": project_onto_simplex}


class Ran(NamedTuple):
    slopes: Tensor | None
    reach: Reach


@dataclass(frozen=True, eq=False)
class Fused:
    """The terms (K_c, M_c) of a model, ready for the native engine."""

    terms: Sequence[tuple[Operator, Compatibility]]
    native: Any
    batch_shape: torch.Size
    dtype: torch.dtype
    symmetric: bool

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are made anew."""
        return fuse, (self.terms,)

    def takes(self, x: Tensor, unary: Tensor | None) -> bool:
        """Whether this engine can answer for x; those that it does not take go term by term."""
        return (
            x.is_cpu
            and x.dtype == self.dtype
            and (not self.batch_shape or x.shape[:-2] == self.batch_shape)
            and (unary is None or (unary.shape == x.shape and unary.dtype == x.dtype and unary.is_cpu))
            and (1 <= x.shape[-1] <= self.native.most_labels() or self._in_panels(x, unary))
            and x.numel() > 0
            and not transformed(x)
            # The backward pass is the same operator, if that is symmetric.
            and (self.symmetric or not self._differentiated(x, unary))
        )

    def _in_panels(self, x: Tensor, unary: Tensor | None) -> bool:
        """Whether there are more labels than the engine's registers hold, but few at a time will do."""
        potts = all(isinstance(c, Potts) and c.weight.dim() == 0 for _, c in self.terms)
        return x.shape[-1] > self.native.most_labels() and potts and not self._differentiated(x, unary)

    def _differentiated(self, x: Tensor, unary: Tensor | None) -> bool:
        weights = [_weight(compat, x) for _, compat in self.terms]
        return torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (x, unary, *weights)
        )

    def __call__(self, x: Tensor, unary: Tensor | None) -> Tensor:
        """P x + u; without a unary, P x."""
        weights = self._weights(x)
        if self._differentiated(x, unary):
            return _Apply.apply(self, x, unary, *weights)  # type: ignore[return-value]
        return self.answer(x, unary, weights)

    def moved(self, x: Tensor | None, unary: Tensor, moves: Sequence[Move]) -> Tensor | None:
        """Where the moves lead from x, or softmax(-unary); None for derivatives that this engine has not."""
        if unary.shape[-1] > self.native.most_labels() and any(m.has_dual for m in moves):
            return None
        weights = self._weights(unary if x is None else x)
        learning = self._differentiated(unary if x is None else x, unary)
        if learning and any(
            m.step != 1 or m.keep != 0 or m.has_dual or m.oracle not in _ORACLES for m in moves
        ):
            return None
        # An infinite energy stays infinite, also for a move that does not look at the unary.
        if any(m.unary != 1 for m in moves) and not bool(torch.isfinite(unary.sum())):
            return None
        if x is None and any(m.has_dual for m in moves):
            x = softmax(unary, -1.0)

        def go(
            x: Tensor | None, unary: Tensor, moves: Sequence[Move], *, noted: bool = True
        ) -> tuple[Tensor, Reach]:
            if learning:
                end, reach = _Moves.apply(self, moves, noted, x, unary, *weights)
                return end, Reach(*reach.tolist())
            end = empty(unary.shape, unary.dtype)
            made = [m.numbers() for m in moves]
            dual = None if x is None else first_dual(x, moves)
            begin, x = (_alone(end), unary) if x is None else (None, x)
            ran = self.run(x, unary, weights, made, [end] * len(moves), before=begin, dual=dual, noted=noted)
            return end, ran.reach

        panel = self.native.most_labels() // _VECTORS
        few = fewer(x, unary, weights, moves, exactly=learning, panel=panel)
        if few is not None:
            end, reach = go(few.x, few.unary, moves)
            if few.holds(reach):
                return few.all_labels(end)
        return go(x, unary, moves, noted=False)[0]

    def _weights(self, x: Tensor) -> list[Tensor]:
        check_values(x, self.terms[0][0].n, self.batch_shape)
        return [_weight(compat, x) for _, compat in self.terms]

    def answer(self, x: Tensor, unary: Tensor | None, weights: Sequence[Tensor]) -> Tensor:
        out = empty(x.shape, x.dtype)
        self.run(x, unary, weights, [ANSWER], [out])
        return out

    def run(
        self,
        x: Tensor,
        unary: Tensor | None,
        weights: Sequence[Tensor],
        moves: Sequence[Sequence[float]],
        outs: Sequence[Tensor | None],
        others: Sequence[Tensor] = (),
        total: Tensor | None = None,
        *,
        before: Before | None = None,
        dual: Tensor | None = None,
        slopes: bool = False,
        noted: bool = False,
        checked: bool = True,
    ) -> Ran:
        """Fill ``outs``, one move after the other, from x or from ``before`` of it.

        ``total`` becomes the sum of all derivatives, that before the moves included; the last move may then
        do without an array of its own.

        With ``slopes``, find the derivative of <other, P x> in each weight, summed over the moves. The
        reach is that of Potts terms, and 0 unless ``noted``.
        """
        labels, terms = x.shape[-1], len(weights)
        flat = lambda t: None if t is None else t.detach().contiguous().view(-1, *x.shape[-2:])  # noqa: E731
        full = torch.tensor([w.dim() > 0 for w in weights], dtype=torch.uint8)
        potts = torch.stack([w.detach().double() if w.dim() == 0 else torch.zeros((), dtype=torch.float64)
                             for w in weights])  # fmt: skip
        matrices = x.new_zeros(terms, labels, labels)
        for M, w in zip(matrices, weights, strict=True):
            if w.dim():
                M.copy_(w.detach())
        found = torch.zeros(terms, labels, labels, dtype=torch.float64) if slopes else None
        begin = before and (MAPS.index(before.oracle), before.scale, flat(before.other), flat(before.out))
        finite, *reach = self.native.run(
            flat(x), begin, flat(unary), potts, full, matrices, torch.tensor(moves, dtype=torch.float64),
            [flat(t) for t in outs], [flat(t) for t in others], flat(total), flat(dual), found,
            noted, threads_for(40 * terms * x.numel()),
        )  # fmt: skip
        if checked and not finite:
            check_finite(x, "x")
        return Ran(found, Reach(*reach))

    def term_by_term(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """P x by operations that autograd sees through."""
        total = None
        for (operator, _), w in zip(self.terms, weights, strict=True):
            y = operator.apply(x)
            y = y @ w if w.dim() else Potts(w).apply(y)
            total = y if total is None else total + y
        assert total is not None
        return total


class _Apply(torch.autograd.Function):
    """P is symmetric, so that it is its own backward, and finds the derivatives in the weights on the way."""

    @staticmethod
    def forward(ctx: Any, model: Fused, x: Tensor, unary: Tensor | None, *weights: Tensor) -> Tensor:
        ctx.model, ctx.has_unary = model, unary is not None
        ctx.learned = any(ctx.needs_input_grad[3:])
        ctx.save_for_backward(x if ctx.learned else None, *weights)
        return model.answer(x, unary, weights)

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
        # Gradients may overflow on purpose (loss scaling): what to do about it is the caller's.
        of_x = empty(g.shape, g.dtype)
        others = [x] if ctx.learned else []
        ran = ctx.model.run(g, None, weights, [ANSWER], [of_x], others, slopes=ctx.learned, checked=False)
        return None, of_x, of_unary, *_slopes(ran.slopes, weights, ctx.needs_input_grad[3:])


class _Moves(torch.autograd.Function):
    """Full steps x_{k+1} = oracle(scale (P x_k + u)), all of them; backward goes through them as natively.

    From softmax(-u) if there is no x. Also answers with ``Ran.reach``.

    With J_k the derivative of step k's oracle, d_k = scale J_k g_{k+1} is its part of the unary's gradient,
    and g_k = P d_k.
    """

    @staticmethod
    def forward(
        ctx: Any,
        model: Fused,
        moves: Sequence[Move],
        noted: bool,
        x: Tensor | None,
        unary: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.model, ctx.moves, ctx.alone = model, moves, x is None
        points = [empty(unary.shape, unary.dtype) for _ in moves]
        start = empty(unary.shape, unary.dtype) if x is None else x
        ran = model.run(
            unary if x is None else x, unary, weights, [m.numbers() for m in moves], points,
            before=_alone(start) if x is None else None, noted=noted,
        )  # fmt: skip
        ctx.save_for_backward(start, unary, *weights, *points)
        reach = torch.tensor(ran.reach, dtype=torch.float64)
        ctx.mark_non_differentiable(reach)
        return points[-1], reach

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        model, moves, terms = ctx.model, ctx.moves, len(ctx.model.terms)
        x, unary, *saved = ctx.saved_tensors
        weights, points = saved[:terms], [x, *saved[terms:]]
        if torch.is_grad_enabled():
            x = None if ctx.alone else x
            return None, None, None, *_again(model, moves, x, unary, weights, g, ctx.needs_input_grad[3:])
        d, of_unary = (empty(g.shape, g.dtype) for _ in range(2))
        # From the last step back to the first, and then the gradient at the start, or through it.
        last, *back = [(f"{m.oracle} derivative", m.scale) for m in moves[::-1]]
        end = numbers("softmax derivative", -1.0) if ctx.alone else ANSWER
        learned = any(ctx.needs_input_grad[5:])
        ran = model.run(
            g, None, weights, [*(numbers(*b) for b in back), end],
            [*([d] * len(back)), None if ctx.alone else d], points[-2::-1], of_unary,
            before=Before(*last, points[-1], d), slopes=learned, checked=False,
        )  # fmt: skip
        of_x = None if ctx.alone else d
        return None, None, None, of_x, of_unary, *_slopes(ran.slopes, weights, ctx.needs_input_grad[5:])


def _alone(out: Tensor) -> Before:
    """softmax(-unary), of the unary: where every pixel sees just its own energies."""
    return Before("softmax", -1.0, None, out)


def _again(
    model: Fused,
    moves: Sequence[Move],
    x: Tensor | None,
    unary: Tensor,
    weights: Sequence[Tensor],
    g: Tensor,
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients as a graph of their own, by steps that autograd sees."""
    y = softmax(unary, -1.0) if x is None else x
    for m in moves:
        y = _ORACLES[m.oracle](_Apply.apply(model, y, unary, *weights), m.scale)
    inputs = [t for t, need in zip((x, unary, *weights), needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(y, inputs, g, create_graph=True))
    return [next(found) if need else None for need in needed]


def _slopes(slopes: Tensor | None, weights: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
    if slopes is None:
        return [None] * len(weights)
    own = [s if w.dim() else s[0, 0] for s, w in zip(slopes, weights, strict=True)]
    return [s.to(w) if need else None for s, w, need in zip(own, weights, needed, strict=True)]


def _weight(compat: Compatibility, x: Tensor) -> Tensor:
    """The weight of Potts, or else the matrix."""
    if isinstance(compat, Potts) and compat.weight.dim() == 0:
        return compat.weight.to(x)
    return compat.matrix(x.shape[-1]).to(x)


def fuse(terms: Sequence[tuple[Operator, Compatibility]]) -> Fused | None:
    """The native engine for these terms, or None where it cannot take one of them."""
    if len(terms) > MAX_TERMS or torch.compiler.is_compiling():
        return None
    first = terms[0][0]
    dtype = first.example.dtype
    if dtype not in _MODELS or any(operator.n != first.n for operator, _ in terms):
        return None
    if len({inner.shape for operator, _ in terms if isinstance(inner := _inner(operator), Separable)}) > 1:
        return None  # the lines of one grid are not those of the other
    native, batches = _MODELS[dtype](), {operator.batch_shape for operator, _ in terms} - {torch.Size()}
    if len(batches) > 1 or not all(_add(native, operator, dtype) for operator, _ in terms):
        return None
    symmetric = all(_symmetric(operator) for operator, _ in terms)
    return Fused(terms, native, batches.pop() if batches else torch.Size(), dtype, symmetric)


def _inner(operator: Operator) -> Operator:
    return operator.inner if isinstance(operator, Shifted) else operator


def _symmetric(operator: Operator) -> bool:
    if isinstance(operator, Lattice):
        return operator.slice is operator.splat and operator.blur == "symmetric"
    inner = _inner(operator)
    return isinstance(inner, Separable) and inner.left is inner.right


def _add(native: Any, operator: Operator, dtype: torch.dtype) -> bool:
    if operator.example.dtype != dtype or not operator.example.is_cpu:
        return False
    if isinstance(operator, Lattice):
        return _add_lattice(native, operator)
    shift = None
    if isinstance(operator, Shifted):
        operator, shift = operator.inner, operator.shift
    if isinstance(operator, Separable):
        return _add_grid(native, operator, shift)
    return False


def _add_lattice(native: Any, K: Lattice) -> bool:
    if K.engine != "native" or any(t is not None and t.requires_grad for t in (K.splat, K.slice, K.shift)):
        return False
    images = math.prod(K.batch_shape)
    index, splat, slice = (t.reshape(images, *t.shape[-2:]).contiguous() for t in (K.index, K.splat, K.slice))
    shift = None if K.shift is None else K.shift.reshape(images, -1).contiguous()
    native.add_lattice(index, splat, slice, K.neighbors, shift, _TAP, K.identity, _ORDERS[K.blur])
    return True


def _add_grid(native: Any, K: Separable, shift: Tensor | None) -> bool:
    known = (*K.taps, *(K.left or ()), *(K.right or ()), *(() if shift is None else (shift,)))
    if len(K.shape) > MAX_AXES or any(t.requires_grad for t in known):
        return False
    left, right = (
        s or [t.new_ones(n) for n, t in zip(K.shape, K.taps, strict=True)] for s in (K.left, K.right)
    )
    axes = [factors(*axis) for axis in zip(K.shape, K.taps, left, right, strict=True)]
    if shift is not None:
        shift = shift.reshape(math.prod(shift.shape[:-1]), -1).contiguous()
    direct = tuple(t.detach().contiguous() for t in (K.taps[-1], left[-1], right[-1]))
    native.add_grid(
        list(K.shape), [f.down.rows for f in axes], [f.down.given for f in axes],
        [f.middle and f.middle.given for f in axes], [f.up.given for f in axes], direct, shift,
    )  # fmt: skip
    return True
