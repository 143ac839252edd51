"""Oracles without a closed form: one root per row, and gradients from the optimality conditions.

For r separable over labels, r(x) = sum_s phi(x_s), the solution satisfies phi'(p_s) = tau - c_s on its
support. The number tau, one per row, follows from sum p = 1. ``increasing_root`` finds it, or an equivalent
unknown in which the sum is closest to linear.

``implicit`` makes a differentiable function from such a solver. At the solution c + grad r(p) is
constant on the support, so that dp = -J (dc + d grad r) with

    J = H^-1 - H^-1 1 1' H^-1 / (1' H^-1 1),     H = Hess r(p) on the support.

The backward pass needs p but not the iterations of the solver. p enters it as an output of the function, so
differentiating the backward pass calls it again, which gives derivatives of any order.
"""

# pyright: reportRedeclaration=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf.regularizers.regularizer import Weight
from fwcrf.torch_ops.printed import in_one_line

# Entries per block of rows: small enough for the cache, large enough for few calls of torch.
_BLOCK = 1 << 18


class InverseHessian(NamedTuple):
    """H^-1 = diag(diagonal) - factor * vector vector', zero off the support."""

    diagonal: Tensor  # (*batch, n, L)
    vector: Tensor | None = None  # (*batch, n, L)
    factor: Tensor | None = None  # (*batch, n, 1)

    __repr__ = in_one_line

    def __call__(self, y: Tensor | None = None) -> Tensor:
        """H^-1 y; H^-1 1 without y."""
        first = self.diagonal if y is None else self.diagonal * y
        if self.vector is None or self.factor is None:
            return first
        along = self.vector if y is None else self.vector * y
        return first - self.factor * self.vector * along.sum(-1, keepdim=True)


Weights = tuple[Tensor, ...]  # one or two, each of dimension 0 or (m, 1)
Solve = Callable[[Tensor, Weights, float], Tensor]  # (z, weights, exponent) -> p; z = c - min c, rows (m, L)


def max_steps(dtype: torch.dtype) -> int:
    """The largest number of evaluations in ``increasing_root``; mostly at most 6 are needed."""
    return {torch.float32: 54, torch.float64: 112}[dtype]


def increasing_root(
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]], low: Tensor, high: Tensor, *, tolerance: float
) -> Tensor:
    """The root of an increasing function in [low, high], for all rows at once, by Newton from the right.

    ``evaluate(t)`` returns the function's value and Newton's next t. If that t leaves the bracket, or the
    step exceeds half of the step before the last, bisection replaces it. Step lengths therefore halve at
    least every second time, which bounds their number. For a convex function (all oracles here, unless they
    say otherwise) each Newton step divides value times slope by at least 4, so bisections are rare.
    """
    t = high
    before = last = high - low
    done = torch.zeros_like(t, dtype=torch.bool)
    for _ in range(max_steps(t.dtype)):
        value, newton = evaluate(t)
        high = torch.where(value >= 0, t, high)
        low = torch.where(value >= 0, low, t)
        good = (newton >= low) & (newton <= high) & ((newton - t).abs() <= 0.5 * before)
        # A converged row stays: its further steps are rounding errors and do not halve.
        new = torch.where(done, t, torch.where(good, newton, 0.5 * (low + high)))
        before, last = last, (new - t).abs()
        done = done | (last <= tolerance * new.abs())
        t = new
        if done.all():
            break
    return t


def solve_undecided(
    z: Tensor,
    weights: Weights,
    margin: Tensor,
    solve: Callable[[Tensor, Weights], Tensor],
    closed: Callable[[], Tensor] | None = None,
) -> Tensor:
    """``solve`` for the rows with several labels whose z is below ``margin``; usually these are few.

    A row with one such label gets the result of ``closed``, by default the vertex of that label.
    """
    near = (1 - z / margin).clamp_(min=0)
    rows = (~(near.sum(-1) <= 1)).nonzero().squeeze(-1)
    if len(rows) == len(z):
        return solve(z, weights)
    answer = near if closed is None else closed()
    if len(rows):
        answer[rows] = solve(z[rows], tuple(w if w.dim() == 0 else w[rows] for w in weights))
    return answer


def exp(x: Tensor) -> Tensor:
    """exp(x) for x <= 0, in place, clamped before it underflows: subnormal numbers are ten times slower."""
    return x.clamp_(min=least_exponent(x.dtype)).exp_()


def least_exponent(dtype: torch.dtype) -> float:
    return {torch.float32: -80.0, torch.float64: -700.0}[dtype]


def _by_blocks(solve: Solve, c: Tensor, weights: Weights, exponent: float) -> Tensor:
    """``solve`` on blocks of rows, with the common steps of all oracles: broadcast, shift, normalize."""
    shape = torch.broadcast_shapes(c.shape, *(w.shape for w in weights))
    num_labels = shape[-1]
    rows = c.expand(shape).reshape(-1, num_labels)
    per_row = [w if w.dim() == 0 else w.expand(*shape[:-1], 1).reshape(-1, 1) for w in weights]
    size = max(1, _BLOCK // max(1, num_labels)) if c.device.type == "cpu" else max(1, len(rows))
    out = rows.new_empty(rows.shape)
    for start in range(0, len(rows), size):
        block = slice(start, start + size)
        z = rows[block]
        z = z - z.amin(-1, keepdim=True)
        p = solve(z, tuple(w if w.dim() == 0 else w[block] for w in per_row), exponent)
        torch.div(p, p.sum(-1, keepdim=True), out=out[block])
    return out.view(shape)


def leading(tensors: Sequence[Tensor], dims: Sequence[int | None]) -> list[Tensor]:
    """Tensors with their mapped axis first, padded by axes of size 1 so that the rest still broadcasts."""
    rank = max(t.dim() - (d is not None) for t, d in zip(tensors, dims, strict=True))

    def lead(t: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return t
        t = t.movedim(dim, 0)
        return t.view(t.shape[0], *[1] * (rank + 1 - t.dim()), *t.shape[1:])

    return [lead(t, d) for t, d in zip(tensors, dims, strict=True)]


def implicit(
    name: str,
    solve: Solve,
    inverse_hessian: Callable[[Tensor, Weights, float], InverseHessian],  # (p, weights, exponent)
    gradients: Callable[[Tensor, Weights, float], Weights],  # ... -> d grad r / d weight, for each weight
) -> Callable[..., Tensor]:
    """A function ``argmin(c, exponent, *weights)`` with derivatives of any order in c and one or two weights.

    The solver becomes a torch operator, a single node for torch.compile and vmap. ``inverse_hessian`` and
    ``gradients`` are differentiable torch code and finite where p is 0.
    """

    def run(c: Tensor, first: Tensor, second: Tensor | None, exponent: float) -> Tensor:
        return _by_blocks(solve, c, _present(first, second), exponent)

    definition = torch.library.custom_op(
        f"fwcrf::{name}",
        run,
        mutates_args=(),
        schema="(Tensor c, Tensor first, Tensor? second, float exponent) -> Tensor",
    )
    operator = getattr(torch.ops.fwcrf, name).default

    @definition.register_fake
    def _(c: Tensor, first: Tensor, second: Tensor | None, exponent: float) -> Tensor:
        return c.new_empty(torch.broadcast_shapes(c.shape, *(w.shape for w in _present(first, second))))

    @definition.register_vmap
    def _(
        info: Any, in_dims: Any, c: Tensor, first: Tensor, second: Tensor | None, exponent: float
    ) -> tuple[Tensor, int]:
        tensors = (c, *_present(first, second))
        return operator(*leading(tensors, in_dims[: len(tensors)]), *[None] * (3 - len(tensors)), exponent), 0

    # Explicit arguments, because torch.compile does not support *weights here.
    class Argmin(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(c: Tensor, first: Tensor, second: Tensor | None, exponent: float) -> Tensor:
            return operator(c, first, second, exponent)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            c, first, second, ctx.exponent = inputs
            ctx.shape = c.shape
            ctx.save_for_backward(output, *_present(first, second))

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
            p, *weights = ctx.saved_tensors
            weights = tuple(weights)
            inverse = inverse_hessian(p, weights, ctx.exponent)
            across, along = inverse(g), inverse()
            total = along.sum(-1, keepdim=True)
            # p is a vertex up to rounding: its derivative is 0.
            total = torch.where(total > 0, total, 1.0)
            dc = along * (across.sum(-1, keepdim=True) / total) - across
            dweights: list[Tensor | None] = [None, None]
            if any(ctx.needs_input_grad[1:3]):
                for i, change in enumerate(gradients(p, weights, ctx.exponent)):
                    dweights[i] = (dc * change).sum_to_size(weights[i].shape)
            return dc.sum_to_size(ctx.shape), *dweights, None

    def argmin(c: Tensor, exponent: float, first: Weight, second: Weight | None = None) -> Tensor:
        one = torch.as_tensor(first, dtype=c.dtype, device=c.device)
        two = None if second is None else torch.as_tensor(second, dtype=c.dtype, device=c.device)
        return Argmin.apply(c, one, two, exponent)

    return argmin


def _present(first: Tensor, second: Tensor | None) -> Weights:
    return (first,) if second is None else (first, second)
