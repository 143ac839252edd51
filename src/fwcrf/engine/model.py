"""The native model: P x + u with every kernel, the compatibility and the unary in one operation.

Steps of a solver that map P x + u row by row, each an ``Update``, run natively too, all in one call. Results
differ from the generic path by float rounding, and in float32 by up to 1e-4 of the largest entry of a spatial
kernel of three and more pixels: the engine computes such a kernel on a coarser grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Potts
from fwcrf.engine.limits import (
    MODELS,
    SPREADS,
    Refusal,
    Task,
    Terms,
    part,
    refuse_arrays,
    refuse_parts,
    refuse_task,
)
from fwcrf.engine.prune import MessageBound, prune
from fwcrf.engine.tables import (
    LatticeSlopes,
    ShiftedSlopes,
    Slopes,
    coarse_slopes,
    slopes,
    tables,
    with_tables,
)
from fwcrf.engine.update import APPLY, DERIVATIVE, Dual, Map, Start, Update
from fwcrf.kernels.lattice import ORDERS, TAP, Lattice
from fwcrf.kernels.operator import Operator, check_values
from fwcrf.kernels.separable import Separable
from fwcrf.torch_ops.native import check_finite, empty, empty_like, matmul, threads_for
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import project_onto_simplex, softmax

_MOST_STEPS = 4096  # of one native call, whose arguments take memory for each step
# The most that a step of softmax leaves x from where it leads, in float32.
TOLERANCE = 1e-5
_CHECKED = 5  # steps after which Python looks for a change, where native code does not
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
        symmetric = all(p.symmetric for p in parts)
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
        self,
        x: Tensor | None,
        unary: Tensor,
        updates: Sequence[Update],
        settings: Settings = NUMBERS,
        reads: list[int] | None = None,
        tolerance: float | None = None,
    ) -> Tensor:
        """The point to which the updates lead from x, or from softmax(-unary) if x is None.

        ``settings`` are tensors of which the updates have the values. ``reads``, a list, becomes the number
        of pixels, of all images, of which each update read P x; it stays empty with gradients.
        ``tolerance`` is as in ``call``: by default TOLERANCE for softmax in float32, else 0. A run with
        gradients takes all its steps.
        """
        check_values(unary, self.n, self.batch_shape)
        weights = self._weights(unary)
        if reads is not None:
            reads.clear()
        watched = tolerance is not None and _alike(updates)
        if tolerance is None:
            soft = unary.dtype == torch.float32 and any(u.map == Map.SOFTMAX for u in updates[:1])
            tolerance = TOLERANCE if soft else 0.0
        given: list[Tensor] = []
        if self.learned and torch.is_grad_enabled():
            given = [t for operator, _ in self.terms for t in tables(operator)]
        learned = _learned(x, unary, [*weights, *given]) or (torch.is_grad_enabled() and settings.learned)
        dual = any(u.lean != 0 or u.dual for u in updates)
        if x is None and dual:
            x = softmax(unary, -1.0)

        def go(x: Tensor | None, unary: Tensor, *, bounded: bool) -> tuple[Tensor, MessageBound]:
            if learned:
                end, bound = _Run.apply(self, updates, bounded, x, unary, *settings, *weights, *given)
                return end, MessageBound(*bound.tolist())
            end = empty(unary.shape, unary.dtype)
            w = _first_dual(x, updates) if dual and x is not None else None
            start, x = (_softmax_start(end), unary) if x is None else (None, x)
            bound = MessageBound(0.0, 0.0)
            read: list[int] = []
            for some, last in self._parts(updates, unary.shape[-1], watched=watched):
                before = end.clone() if last else None
                found = self.call(
                    x, unary, weights, some, [end] * len(some), start=start, dual=w, bounded=bounded,
                    reads=read, tolerance=tolerance,
                )[1]  # fmt: skip
                bound = MessageBound(*map(max, bound, found))
                start, x = None, end
                if before is not None and bool((end - before).abs().max() <= tolerance * some[0].step):
                    read += [0] * (len(updates) - len(read))
                    break
            if reads is not None:
                reads[:] = read
            return end, bound

        widths = {"lanes": self.native.lanes(), "row": self.native.row}
        # The derivatives in a step size and in tables depend on every label.
        whole = dual or bool(given) or (learned and settings.steps is not None)
        pruned = None if whole else prune(x, unary, weights, updates, exact=learned, **widths)
        if pruned is not None:
            end, bound = go(pruned.x, pruned.unary, bounded=True)
            if pruned.holds(bound):
                return pruned.all_labels(end)
        return go(x, unary, bounded=False)[0]

    def _parts(
        self, updates: Sequence[Update], labels: int, *, watched: bool
    ) -> Iterator[tuple[Sequence[Update], bool]]:
        """The updates of each native call; True for one after which a change is looked for.

        Native code looks for it itself but for panels of labels.
        """
        if not watched or not self.potts or labels <= 4 * self.native.lanes():
            for first in range(0, len(updates), _MOST_STEPS):
                yield updates[first : first + _MOST_STEPS], False
            return
        for first in range(0, len(updates), _CHECKED):
            some = updates[first : first + _CHECKED]
            if len(some) > 1:
                yield some[:-1], False
            yield some[-1:], first + _CHECKED < len(updates)

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
        goals: Sequence[Tensor | None] = (),
        points: Sequence[Tensor] = (),
        rates: Tensor | None = None,
        reads: list[int] | None = None,
        tolerance: float = 0.0,
        spreads: Any = None,
        point_spreads: Any = None,
        tables: Sequence[tuple[Tensor | None, Tensor | None]] = (),
    ) -> tuple[Tensor | None, MessageBound]:
        """Fill ``outs``, one update after the other, from x or from ``start``.

        ``total`` becomes the sum of all derivatives, the one of ``start`` included; the last update may then
        do without an array of its own. ``goals`` become p of the updates whose step is not 1. ``points`` are
        by default the others. Returns, with ``slopes``, the derivative of <point, P x> in each weight, summed
        over the updates; and, if ``bounded``, the bound on the messages of Potts terms. ``rates``, three
        numbers for the start and each update, are described in csrc/steps/arguments.hpp. ``reads`` gets, for
        each update, the number of pixels, of all images, of which P x was read. A pixel may stay where it is
        if a full step would change no probability by more than ``tolerance``; when all pixels stay, the run
        ends. ``spreads`` is filled with the blurred lattices and coarse grids of x in every update, of terms
        where they are small. Derivatives of a run whose spreads are ``point_spreads`` take less time, and
        are added to ``tables``: the derivatives of each term in the weights of its lattice, and in its
        diagonal.
        """
        labels, terms = x.shape[-1], len(weights)
        # As numpy arrays: their conversion runs no Python code, in which an interrupt would be lost.
        native = lambda t: None if t is None else t.detach().contiguous().numpy()  # noqa: E731
        shape = -1, *x.shape[-2:]
        flat = lambda t: None if t is None else t.detach().contiguous().view(shape).numpy()  # noqa: E731
        potts = np.array([0.0 if w.dim() else w.detach().numpy() for w in weights], dtype=np.float64)
        # No matrix for Potts: with 70,000 labels it would take 20 GB.
        matrices = [native(w) if w.dim() else None for w in weights]
        found = x.new_zeros(terms, labels, labels, dtype=torch.float64) if slopes else None
        begin = start and (start.map, start.scale, flat(start.other), flat(start.out), start.step)
        finite, *bound, read = self.native.run(
            flat(x), begin, flat(unary), potts, matrices, np.array(updates, dtype=np.float64),
            [flat(t) for t in outs], [flat(t) for t in others], flat(total), flat(dual),
            None if found is None else found.numpy(), bounded, goals=[flat(t) for t in goals],
            points=[flat(t) for t in points], rates=None if rates is None else native(rates),
            threads=threads_for(40 * terms * x.numel()), tolerance=tolerance,
            spreads=spreads, point_spreads=point_spreads,
            tables=[tuple(map(native, pair)) for pair in tables],
        )  # fmt: skip
        if checked and not finite:
            check_finite(x, "x")
        if reads is not None:
            reads += read
        return found, MessageBound(*bound)

    def term_by_term(
        self, x: Tensor, weights: Sequence[Tensor], operators: Sequence[Operator] | None = None
    ) -> Tensor:
        """P x by operations that autograd sees through; ``operators`` may replace the terms' operators."""
        parts = []
        operators = [operator for operator, _ in self.terms] if operators is None else operators
        for operator, w in zip(operators, weights, strict=True):
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
    """Steps x_{k+1} = x_k + a_k (p_k - x_k) to p_k = map(scale (P x_k + u)), all of them, and their bound.

    From softmax(-u) if x is None. The backward pass is one native call too. With J_k the derivative of the
    map at step k and g_k the gradient in x_k, d_k = a_k scale J_k g_{k+1} is the gradient in the unary, and
    g_k = (1 - a_k) g_{k+1} + P d_k; the dual variable is g, unless all steps are 1. The gradient in a_k is
    <g_{k+1}, p_k - x_k>, and in lambda <d_k, v_k> with v_k the argument of the map. Rows of d_k sum to 0, so
    that v_k may be replaced by log p_k of a softmax, and by p_k of a projection. The gradient in a table of a
    kernel is the sum over steps of the derivative of <d_k, P x_k>.

    ``rest`` are the weights, and the tables of the kernels where they are learned.
    """

    @staticmethod
    def forward(
        ctx: Any,
        model: Model,
        updates: Sequence[Update],
        bounded: bool,
        x: Tensor | None,
        unary: Tensor,
        weight: Tensor | None,
        steps: Tensor | None,
        *rest: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.model, ctx.updates, ctx.from_unary = model, updates, x is None
        ctx.given, weights = len(rest), rest[: len(model.terms)]
        points = empty_like(unary, len(updates) + (x is None))
        ctx.partial = any([u.step != 1 for u in updates])
        goals = []
        if ctx.partial:
            goals = [None if u.step == 1 else empty(unary.shape, unary.dtype) for u in updates]
        start, begin = (_softmax_start(points[0]), points.pop(0)) if x is None else (None, x)
        needs = ctx.needs_input_grad[7:]
        matrices = any(need and w.dim() for need, w in zip(needs, weights, strict=False))
        # Where most pixels are at vertices, slopes of weights by spreads need no step of all pixels.
        settled = not ctx.partial and updates[-1].map == Map.PROJECT and any(needs[: len(weights)])
        short = bounded or model.native.row(unary.shape[-1]) == model.native.row(1)
        wanted = matrices or any(needs[len(weights) :]) or (settled and short)
        ctx.spreads = SPREADS[unary.dtype]() if wanted else None
        _, bound = model.call(
            unary if x is None else x, unary, weights, updates, points, start=start, bounded=bounded,
            goals=goals, spreads=ctx.spreads,
        )  # fmt: skip
        ctx.save_for_backward(begin, unary, weight, steps, *rest, *points, *goals)
        found = torch.tensor(bound, dtype=torch.float64, device="cpu")
        ctx.mark_non_differentiable(found)
        return points[-1], found

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        model, updates, needs = ctx.model, ctx.updates, ctx.needs_input_grad
        x, unary, weight, steps, *saved = ctx.saved_tensors
        terms, count, given = len(model.terms), len(updates), ctx.given
        rest, points = saved[:given], [x, *saved[given : given + count]]
        weights = rest[:terms]
        goals = points[1:]
        if ctx.partial:
            goals = [end if p is None else p for p, end in zip(saved[-count:], goals, strict=True)]
        if torch.is_grad_enabled():
            start, settings = None if ctx.from_unary else x, Settings(weight, steps)
            found = _steps_again(model, updates, start, unary, settings, rest, g, needs[3:])
            return None, None, None, *found
        of_tables = None
        if any(needs[7 + terms :]):
            of_tables = TableSlopes.of(model, rest, needs[7 + terms :], ctx.spreads, math.prod(g.shape[:-2]))
        kept = of_tables is not None and of_tables.of_steps
        of_unary, *ds = empty_like(g, max(1, count - 1) if kept else 2)
        # d_k of step k; one array if nothing reads them. The first to be freed go back to the system.
        ds = ds if kept else ds * count
        ds += [torch.empty(g.shape, dtype=g.dtype, device="cpu") for _ in range(count - len(ds))]
        of_x = None if ctx.from_unary else empty(g.shape, g.dtype) if kept else ds[0]
        spreads = SPREADS[g.dtype]() if of_tables is not None and of_tables.of_spreads else None
        dual = empty(g.shape, g.dtype) if ctx.partial else None
        rates = g.new_zeros(count + 1, 3, dtype=torch.float64) if needs[5] or needs[6] else None
        # From the last step back to the first, and then the gradient at the start, or through it.
        last, *back = _derivatives(updates, ctx.from_unary, after=ctx.partial or rates is not None)
        slopes, _ = model.call(
            g, None, weights, back, [*ds[-2::-1], of_x], [*goals[-2::-1], x], of_unary,
            start=Start(last.map, last.scale, goals[-1], ds[-1], last.step),
            dual=dual, slopes=any(needs[7 : 7 + terms]), checked=False,
            points=points[-2::-1] if ctx.partial else (), rates=rates, spreads=spreads,
            point_spreads=ctx.spreads, tables=() if of_tables is None else of_tables.native,
        )  # fmt: skip
        of_weight = of_steps = None
        if rates is not None and needs[5]:
            of_weight = rates[:-1, 2].sum().to(weight)
        if rates is not None and needs[6]:
            of_steps = (rates[:-1, 0] - rates[:-1, 1]).flip(0).to(steps)
        del dual
        in_tables: list[Tensor | None] = [None] * (given - terms)
        if of_tables is not None:
            if kept:
                of_tables.add_steps(points[:-1], ds)
            if spreads is not None:
                of_tables.add_spreads(ctx.spreads, spreads, g.shape[-1], model.native.row(g.shape[-1]))
            in_tables = of_tables.found()
        found = _slopes(slopes, weights, needs[7 : 7 + terms])
        return None, None, None, of_x, of_unary, of_weight, of_steps, *found, *in_tables


def _derivatives(updates: Sequence[Update], from_unary: bool, *, after: bool) -> list[Update]:
    """The derivatives of the updates from the last to the first, and the way to the start or through it.

    With ``after`` their scale follows the derivative of the map, whose argument is the gradient in x then. If
    a step is not 1, that gradient is a dual variable.
    """
    end = Update(Map.SOFTMAX_DERIVATIVE, -1.0) if from_unary else APPLY
    found = [*[Update(DERIVATIVE[u.map], u.scale) for u in updates[::-1]], end]
    if not after:
        return found
    rates = [*(u.step * u.scale for u in updates[::-1]), end.scale]
    kept = [0.0, *(1 - u.step for u in updates[::-1])]
    dual = Dual.GRADIENT if any(kept) else Dual.NONE
    return [
        u._replace(scale=1.0, step=rate, lean=keep, dual=dual)
        for u, rate, keep in zip(found, rates, kept, strict=True)
    ]


class TableSlopes(NamedTuple):
    """The derivatives of the sum over steps of <d, P x> in the tables of kernels that need them."""

    weights: Sequence[Tensor]
    counts: Sequence[int]  # tables of each term
    each: Sequence[Slopes | None]
    images: int

    __repr__ = in_one_line

    @staticmethod
    def of(
        model: Model, rest: Sequence[Tensor], needs: Sequence[bool], spreads: Any, images: int
    ) -> TableSlopes:
        """Empty sums. ``rest`` are the weights and the tables, ``spreads`` the spreads of the run."""
        weights, first = [w.detach() for w in rest[: len(model.terms)]], 0
        each: list[Slopes | None] = []
        counts = [len(tables(operator)) for operator, _ in model.terms]
        for c, ((operator, _), w, count) in enumerate(zip(model.terms, weights, counts, strict=True)):
            given, needed = rest[len(weights) + first :][:count], needs[first : first + count]
            spread = all(len(spreads.array(i, 0, c)) for i in range(images))
            matrix = w if w.dim() else None
            each.append(slopes(operator, given, matrix, spread=spread) if any(needed) else None)
            first += count
        alike = [one for one, w in zip(each, weights, strict=True) if w.dim() == 0]
        lattices = [one for one in alike if isinstance(one, LatticeSlopes)]
        for one in alike:
            if lattices and isinstance(one, ShiftedSlopes):
                one.alike = lattices[0]
        return TableSlopes(weights, counts, each, images)

    @property
    def of_steps(self) -> bool:
        return any(one is not None and one.of_steps for one in self.each)

    @property
    def of_spreads(self) -> bool:
        return any(coarse_slopes(one) is not None for one in self.each)

    @property
    def native(self) -> list[tuple[Tensor | None, Tensor | None]]:
        """The arrays that the native run of the derivatives fills."""
        return [(None, None) if one is None else one.native for one in self.each]

    def add_steps(self, points: Sequence[Tensor], ds: list[Tensor]) -> None:
        """Add the parts that the native run has not. Empties the list ``ds``, whose arrays are large."""
        for x in reversed(points):
            d = ds.pop()
            for one in self.each:
                if one is not None and one.of_steps:
                    one.add(x, d)

    def add_spreads(self, of_points: Any, of_ds: Any, labels: int, cell: int) -> None:
        """Add the remaining parts, from the spreads of a run and of its derivatives."""
        steps = of_points.steps()
        for c, coarse in enumerate(map(coarse_slopes, self.each)):
            for image in range(self.images if coarse is not None else 0):
                for k in range(steps):
                    x, d = of_points.array(image, k, c), of_ds.array(image, steps - 1 - k, c)
                    coarse.add_spread(torch.from_numpy(x), torch.from_numpy(d), labels, cell)  # type: ignore

    def found(self) -> list[Tensor | None]:
        found: list[Tensor | None] = []
        for one, w, count in zip(self.each, self.weights, self.counts, strict=True):
            if one is None:
                found += [None] * count
            else:
                # Rows of d sum to 0, so that Potts multiplies them by -w.
                found += one.found() if w.dim() else [t * -w.to(t) for t in one.found()]
        return found


def _steps_again(
    model: Model,
    updates: Sequence[Update],
    x: Tensor | None,
    unary: Tensor,
    settings: Settings,
    rest: Sequence[Tensor],
    g: Tensor,
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of a run, differentiable, by operations that autograd sees through.

    ``rest`` are the weights, and the tables of kernels where these are learned.
    """
    # Some tables depend on others, which the caller's graph follows. Seen from here none does.
    weights, given = rest[: len(model.terms)], [t.view_as(t) for t in rest[len(model.terms) :]]
    rest, left = [*weights, *given], list(given)
    operators = []
    for operator, _ in model.terms if given else ():
        count = len(tables(operator))
        operators.append(with_tables(operator, left[:count]))
        del left[:count]
    y = softmax(unary, -1.0) if x is None else x
    for k, u in enumerate(updates):
        if operators:
            v = model.term_by_term(y, weights, operators) + unary
        else:
            v = _Apply.apply(model, y, unary, *rest)
        scaled = u.scale * v if settings.weight is None else v * (-1 / settings.weight.to(v))
        p = _ORACLES[u.map](scaled, 1.0)
        y = torch.lerp(y, p, u.step if settings.steps is None else settings.steps[k].to(y))
    learned = (x, unary, *settings, *rest)
    inputs = [t for t, need in zip(learned, needed, strict=True) if need and t is not None]
    found = iter(torch.autograd.grad(y, inputs, g, create_graph=True, allow_unused=True))
    return [next(found) if need else None for need in needed]


def _slopes(slopes: Tensor | None, weights: Sequence[Tensor], needed: Sequence[bool]) -> list[Tensor | None]:
    if slopes is None:
        return [None] * len(weights)
    each = [s if w.dim() else s[0, 0] for s, w in zip(slopes, weights, strict=True)]
    return [s.to(w) if need else None for s, w, need in zip(each, weights, needed, strict=True)]


def _learned(x: Tensor | None, unary: Tensor | None, weights: Sequence[Tensor]) -> bool:
    """True if autograd records derivatives in the point, the unary or a weight."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, unary, *weights))


def _alike(updates: Sequence[Update]) -> bool:
    """True for updates that differ in their step sizes only, and have no dual variable."""
    first = updates[0]._replace(step=1.0)
    return not first.dual and first.lean == 0 and all(u._replace(step=1.0) == first for u in updates)


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


def _add_lattice(native: Any, K: Lattice) -> None:
    images = math.prod(K.index.shape[:-2])
    given = (K.index, K.splat.detach(), K.slice.detach())
    index, splat, slice = (t.reshape(images, *t.shape[-2:]).contiguous().numpy() for t in given)
    shift = None if K.shift is None else K.shift.detach().reshape(images, -1).contiguous().numpy()
    neighbors = K.neighbors.contiguous().numpy()
    native.add_lattice(index, splat, slice, neighbors, shift, TAP, K.identity, ORDERS[K.blur])


def _add_grid(native: Any, K: Separable, shift: Tensor | None) -> None:
    if shift is not None:
        shift = shift.detach().reshape(math.prod(shift.shape[:-1]), -1).contiguous().numpy()  # type: ignore
    native.add_grid(K.shape, *K.banded, shift)  # type: ignore[misc]  # ``refuse_parts`` checks for None
