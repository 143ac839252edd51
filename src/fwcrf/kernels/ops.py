"""The linear filters as torch operators.

Each filter is a custom operator without autograd, so that torch.compile and torch.export see one
opaque node, wrapped in an autograd Function whose backward is the filter again: that gives
reverse-mode derivatives of any order, torch.func and vmap. Forward mode raises an error: a Function that
had it could not be compiled. Kernels for other devices are plain torch.
"""

# pyright: reportRedeclaration=false
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from fwcrf import _core
from fwcrf.finite import check_finite
from fwcrf.kernels import lattice_device, lattice_torch, separable_torch
from fwcrf.memory import empty
from fwcrf.threads import threads_for

_CHUNK_BYTES = 16 << 20
_TABLED = 6  # corners whose sets of axes are the bits of a word


def transformed(x: Tensor) -> bool:
    """Whether torch traces the code, or x stands for something else: torch.func, forward-mode derivatives."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or unpack_dual(x).tangent is not None
    )


def differentiated(x: Tensor, *others: Tensor | None) -> bool:
    """Whether someone may ask for derivatives; a Function takes longer to apply than its operator."""
    # Inside torch.func a tensor does not tell whether an outer transform differentiates it.
    if not torch.compiler.is_compiling() and transformed(x):
        return True
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *others))


def untraced(x: Tensor) -> bool:
    """Whether an operator's CPU kernel may be called by itself: nothing watches.

    The first call of a custom operator loads torch's compiler, which takes longer than refining an image.
    """
    return x.is_cpu and not transformed(x) and not torch._C._len_torch_dispatch_stack()


# --- exact -------------------------------------------------------------------------------------


@torch.library.custom_op("fwcrf::exact_filter", mutates_args=())
def _exact(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2) x_j with leading axes broadcast."""
    if checked and x.is_cpu:
        check_finite(x, "x")
    batch = torch.broadcast_shapes(x.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    x, rows, columns = (t.expand(*batch, *t.shape[-2:]) for t in (x, rows, columns))
    out = x.new_empty(*batch, rows.shape[-2], x.shape[-1])
    step = max(1, _CHUNK_BYTES // (x.element_size() * max(1, columns.shape[-2])))
    for at in itertools.product(*map(range, batch)):
        for start in range(0, rows.shape[-2], step):
            some = rows[at][start : start + step]
            # The form with a matrix product is faster and loses half the digits.
            distance = torch.cdist(some, columns[at], compute_mode="donot_use_mm_for_euclid_dist")
            out[at][start : start + step] = distance.square_().mul_(-0.5).exp_() @ x[at]
    return out


@_exact.register_fake
def _(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    batch = torch.broadcast_shapes(x.shape[:-2], rows.shape[:-2], columns.shape[:-2])
    return x.new_empty(*batch, rows.shape[-2], x.shape[-1])


@_exact.register_vmap
def _(info: Any, in_dims: Any, x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> tuple[Tensor, int]:
    tensors = list(zip((x, rows, columns), in_dims[:3], strict=True))
    rank = max(t.dim() - (d is not None) for t, d in tensors)

    def lead(t: Tensor, dim: int | None) -> Tensor:
        if dim is None:
            return t
        t = t.movedim(dim, 0)
        return t.view(t.shape[0], *[1] * (rank + 1 - t.dim()), *t.shape[1:])

    return _exact(*(lead(t, d) for t, d in tensors), checked), 0


class _Exact(torch.autograd.Function):
    """Its derivatives in the features are the same filter applied to x times features."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
        return _exact(x, rows, columns, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs[:3])

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, rows, columns = ctx.saved_tensors
        needs_x, needs_rows, needs_columns, _ = ctx.needs_input_grad
        grad_x = grad_rows = grad_columns = None
        if needs_x or needs_columns:
            back = _Exact.apply(g, columns, rows, False)
            grad_x = back.sum_to_size(x.shape)
            if needs_columns:
                grad_columns = _pull(x, g, columns, rows, back).sum_to_size(columns.shape)
        if needs_rows:
            forward = _Exact.apply(x, rows, columns, False)
            grad_rows = _pull(g, x, rows, columns, forward).sum_to_size(rows.shape)
        return grad_x, grad_rows, grad_columns, None


def _pull(left: Tensor, right: Tensor, at: Tensor, other: Tensor, filtered: Tensor) -> Tensor:
    """sum_j k_ij <left_i, right_j> (other_j - at_i), where ``filtered`` is K right."""
    outer = (right.unsqueeze(-1) * other.unsqueeze(-2)).flatten(-2)
    moved = _Exact.apply(outer, at, other, False).unflatten(-1, (right.shape[-1], other.shape[-1]))
    pulled = (left.unsqueeze(-1) * moved).sum(-2)
    return pulled - at * (left * filtered).sum(-1, keepdim=True)


def exact_filter(x: Tensor, features: Tensor) -> Tensor:
    """K x for the Gaussian kernel of ``features``; any leading axes."""
    # As a view, because torch.compile takes no tensor twice.
    return _Exact.apply(x, features, features.view_as(features), True)


def exact_sums(rows: Tensor, columns: Tensor) -> Tensor:
    """sum_j exp(-|rows_i - columns_j|^2 / 2), (*batch, rows)."""
    if not untraced(rows) or differentiated(rows, columns):
        return _Exact.apply(columns.new_ones(*columns.shape[:-1], 1), rows, columns, False).squeeze(-1)
    out = rows.new_empty(rows.shape[:-1])
    some, others = (t.detach().reshape(-1, *t.shape[-2:]).contiguous() for t in (rows, columns))
    work = 4 * out.numel() * columns.shape[-2]
    _core.gaussian_sums(some, others, out.view(-1, rows.shape[-2]), threads_for(work))
    return out


# --- lattice -----------------------------------------------------------------------------------


@torch.library.custom_op("fwcrf::lattice_filter", mutates_args=())
def _lattice(
    x: Tensor,  # (images, n, channels)
    index: Tensor,  # (n, corners)
    splat: Tensor,  # (n, corners)
    slice: Tensor | None,  # (n, corners); None where it is `splat`
    neighbors: Tensor,  # (corners, vertices, 2)
    shift: Tensor | None,  # (n)
    tap: float,
    identity: float,
    order: int,
    checked: bool,
) -> Tensor:
    # Values are not looked at here: the host would wait for the device, in every step of a solver.
    return lattice_device.filter(x, index, splat, slice, neighbors, shift, tap, identity, order)


@_lattice.register_kernel("cpu")
def _lattice_native(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        work = x[0].numel() * index.shape[-1]
        finite = _core.filter(
            x.detach(), index, splat, splat if slice is None else slice, neighbors, shift, tap, identity,
            order, out, threads_for(work),
        )  # fmt: skip
        if checked and not finite:
            check_finite(x, "x")
    return out


@_lattice.register_fake
def _(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_lattice.register_vmap
def _(info, in_dims, x, *rest):  # type: ignore
    if any(d is not None for d in in_dims[1:]):
        raise ValueError("vmap over a lattice filter takes batches of x, not of lattices.")
    x = x.movedim(in_dims[0], 0)
    return _lattice(x.flatten(0, 1), *rest).unflatten(0, x.shape[:2]), 0


_TRANSPOSED = {0: 0, 1: 2, 2: 1}


class _Lattice(torch.autograd.Function):
    """Its derivative in the weight of a corner is the same filter, 1 for that weight and 0 for others."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
        return _lattice(x, index, splat, slice, neighbors, shift, tap, identity, order, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, index, splat, slice, neighbors, shift, ctx.tap, ctx.identity, ctx.order, _ = inputs
        ctx.learned = any(ctx.needs_input_grad[i] for i in (2, 3, 5))
        ctx.save_for_backward(x if ctx.learned else None, index, splat, slice, neighbors, shift)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, index, splat, slice, neighbors, shift = ctx.saved_tensors
        order, back = ctx.order, _TRANSPOSED[ctx.order]

        # Gradients may overflow on purpose (loss scaling): what to do about it is the caller's.
        def filtered(v, splat, slice, shift, order):  # type: ignore
            return _Lattice.apply(
                v, index, splat, slice, neighbors, shift, ctx.tap, ctx.identity, order, False
            )

        def corners(left, v, splat, order):  # type: ignore
            """<left_i, (blurred splat of v) at corner c of point i>, (n, corners)."""
            if untraced(v) and not differentiated(left, v, splat):
                return _corner_dots(left, v, index, splat, neighbors, ctx.tap, ctx.identity, order)
            only = torch.eye(index.shape[-1], dtype=splat.dtype, device=splat.device)
            columns = [
                (left * filtered(v, splat, one.expand(index.shape).contiguous(), None, order)).sum((0, -1))
                for one in only
            ]
            return torch.stack(columns, -1)

        grads: list[Tensor | None] = [None] * 10
        if ctx.needs_input_grad[0]:
            grads[0] = (
                filtered(g, splat, None, shift, back)
                if slice is None
                else filtered(g, slice, splat, shift, back)
            )
        if ctx.learned:
            if ctx.needs_input_grad[2]:
                grads[2] = corners(x, g, splat if slice is None else slice, back)
                if slice is None:
                    grads[2] = grads[2] + corners(g, x, splat, order)
            if ctx.needs_input_grad[3]:
                grads[3] = corners(g, x, splat, order)
            if ctx.needs_input_grad[5]:
                grads[5] = (g * x).sum((0, -1))
        return tuple(grads)


_CHANNELS = {torch.float32: _core.ModelF32.most_labels(), torch.float64: _core.ModelF64.most_labels()}


def _corner_dots(
    left: Tensor,
    v: Tensor,
    index: Tensor,
    splat: Tensor,
    neighbors: Tensor,
    tap: float,
    identity: float,
    order: int,
) -> Tensor:
    out = empty(splat.shape, splat.dtype).zero_()
    parts = (t.detach().split(_CHANNELS[v.dtype], -1) for t in (left, v))
    for some, values in zip(*parts, strict=True):
        _core.corner_dots(
            some.contiguous(), values.contiguous(), index, splat.detach().contiguous(), neighbors, tap,
            identity, order, out, threads_for(v[0].numel() * index.shape[-1]),
        )  # fmt: skip
    return out


def lattice_filter(
    x: Tensor,
    index: Tensor,
    splat: Tensor,
    slice: Tensor | None,
    neighbors: Tensor,
    shift: Tensor | None,
    tap: float,
    identity: float,
    order: int,
) -> Tensor:
    """diag(shift) x + slice (blur + identity I) splat' x, linear in x; see ``Lattice``."""
    arguments = (x, index, splat, slice, neighbors, shift, tap, identity, order, True)
    if differentiated(x, splat, slice, shift):
        return _Lattice.apply(*arguments)
    return _lattice_native(*arguments) if untraced(x) else _lattice(*arguments)


@torch.library.custom_op("fwcrf::build_lattice", mutates_args=())
def _build(features: Tensor, scale: Sequence[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    low, high = lattice_torch.quotient_bounds(features, scale)
    with torch.no_grad():
        return lattice_torch.build(features, scale, low, high)


@_build.register_kernel("cpu")
def _build_native(features, scale):  # type: ignore
    low, high = lattice_torch.quotient_bounds(features, scale)
    d = features.shape[-1]
    index = empty((*features.shape[:-1], d + 1), torch.int32)
    weight = empty(index.shape, features.dtype)
    order = empty((*features.shape[:-1], lattice_torch.order_words(d + 1)), torch.int64)
    neighbors = torch.from_numpy(
        _core.build_lattice(
            features.detach(), torch.tensor(scale, dtype=torch.float64),
            torch.tensor(low), torch.tensor(high), index, weight, order, threads_for(features.numel() * 8),
        )
    )  # fmt: skip
    return index, weight, order, neighbors


@_build.register_fake
def _(features, scale):  # type: ignore
    batch, n, d = features.shape
    vertices = torch.library.get_ctx().new_dynamic_size(min=d + 1)
    return (
        features.new_empty(batch, n, d + 1, dtype=torch.int32),
        features.new_empty(batch, n, d + 1),
        features.new_empty(batch, n, lattice_torch.order_words(d + 1), dtype=torch.int64),
        features.new_empty(d + 1, vertices, 2, dtype=torch.int32),
    )


class _Attach(torch.autograd.Function):
    """The weights, with their derivative in the features: inside a simplex they are linear in them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(features: Tensor, weight: Tensor, order: Tensor, scale: Sequence[float]) -> Tensor:
        return weight.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, order, ctx.scale = inputs
        ctx.save_for_backward(order)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return lattice_torch.embedding_adjoint(g, ctx.saved_tensors[0], ctx.scale), None, None, None


def build_lattice(features: Tensor, scale: Sequence[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``index`` and ``weight`` (batch, n, d + 1), packed ``order``, and ``neighbors`` of (batch, n, d)."""
    build = _build_native if untraced(features) else _build
    index, weight, order, neighbors = build(features.detach(), list(scale))
    if differentiated(features):
        weight = _Attach.apply(features, weight, order, scale)
    return index, weight, order, neighbors


def placed(weight: Tensor, exponent: float, factor: Tensor) -> Tensor:
    """factor exp(exponent |w|^2) w, for the weights w of each point on the last axis.

    There is a factor for each image: ``(*batch, 1)``.
    """
    if not untraced(weight) or differentiated(weight, factor):
        return weight * (factor.unsqueeze(-1) * (exponent * weight.square().sum(-1, keepdim=True)).exp())
    out, rows = empty(weight.shape, weight.dtype), weight.shape[-2:]
    given, factors = weight.detach().contiguous().view(-1, *rows), factor.detach().contiguous().view(-1)
    _core.placed(given, factors, exponent, out.view(-1, *rows), threads_for(4 * out.numel()))
    return out


def sampled_sums(
    features: Tensor,  # (*batch, n, d)
    points: Tensor,
    rows: int,
    index: Tensor,
    weight: Tensor,
    neighbors: Tensor,
    exponent: float,
    tap: float,
    identity: float,
    order: int,
) -> tuple[Tensor, Tensor] | None:
    """Sums of the first points over the others, by ``exact_sums`` and by a lattice of ``placed`` weights.

    Both are ``(*batch, rows)``. None where torch has to see what is done.
    """
    if not untraced(features) or differentiated(features, weight):
        return None
    flat = features.detach().reshape(-1, *features.shape[-2:]).contiguous()
    exact, own = (features.new_empty(*features.shape[:-2], rows) for _ in range(2))
    _core.sampled_sums(
        flat, points, rows, index.view(*flat.shape[:-1], -1), weight.detach().view(*flat.shape[:-1], -1),
        neighbors, exponent, tap, identity, order, exact.view(-1, rows), own.view(-1, rows),
        threads_for(4 * rows * len(points) * len(flat)),
    )  # fmt: skip
    return exact, own


def symmetric_lattice(
    index: Tensor,
    weight: Tensor,
    order: Tensor,
    neighbors: Tensor,
    factor: Tensor,
    exponent: float,
    tap: float,
    identity: float,
) -> tuple[Tensor, Tensor, Tensor, tuple[float, float]] | None:
    """``placed`` weights of a kernel with ones on its diagonal, divided by the roots of its row sums.

    With what is then to be added to the diagonal, what would take it away instead, and the extremes of the
    row sums. None where torch has to see what is done, or for more axes than the native code knows.
    """
    if (
        not untraced(weight)
        or differentiated(weight, factor)
        or weight.shape[-1] > _TABLED
        or not weight.numel()
    ):
        return None
    out, rows = empty(weight.shape, weight.dtype), weight.shape[-2:]
    given = weight.detach().contiguous().view(-1, *rows)
    shift, minus = (empty(weight.shape[:-1], weight.dtype) for _ in range(2))
    found = _core.normal(
        index.view(-1, *rows), given, order.view(-1, rows[0], 1), neighbors,
        factor.detach().contiguous().view(-1), exponent, tap, identity, out.view(-1, *rows),
        shift.view(-1, rows[0]), minus.view(-1, rows[0]), threads_for(32 * out.numel()),
    )  # fmt: skip
    return out, shift, minus, found


def scaled_rows(weight: Tensor, factor: Tensor) -> Tensor:
    """factor_i w_i, for the weights w of each point on the last axis."""
    return scaled_both_ways(weight, factor, [])[0]


def scaled_both_ways(
    weight: Tensor, factor: Tensor, diagonals: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """``scaled_rows``, and up to two diagonals of kernels whose rows and columns are scaled."""
    same = all(t.dtype == factor.dtype and t.shape == factor.shape for t in diagonals)
    same = same and weight.dtype == factor.dtype and weight.shape[:-1] == factor.shape
    if not same or not untraced(weight) or differentiated(weight, factor, *diagonals):
        return weight * factor.unsqueeze(-1), [factor * t * factor for t in diagonals]
    out, corners = empty(weight.shape, weight.dtype), weight.shape[-1]
    scaled = [empty(t.shape, t.dtype) for t in diagonals]
    factors, *given = (t.detach().contiguous().view(-1) for t in (factor, *diagonals))
    _core.scaled_rows(
        weight.detach().contiguous().view(-1, corners), factors, out.view(-1, corners), given,
        [t.view(-1) for t in scaled], threads_for(4 * out.numel()),
    )  # fmt: skip
    return out, scaled


@torch.library.custom_op("fwcrf::lattice_diagonal", mutates_args=())
def _diagonal(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    return lattice_torch.diagonal(weight, index, order, neighbors, tap, identity)


@_diagonal.register_kernel("cpu")
def _diagonal_native(weight, index, order, neighbors, tap, identity):  # type: ignore
    return _diagonal_and_slopes(weight, index, order, neighbors, tap, identity, None)


def _diagonal_and_slopes(weight, index, order, neighbors, tap, identity, slopes):  # type: ignore
    out = empty(weight.shape[:1], weight.dtype)
    weight = weight.detach().contiguous()
    _core.diagonal(index, weight, order, neighbors, tap, identity, out, slopes, threads_for(32 * out.numel()))
    return out


@_diagonal.register_fake
def _(weight, index, order, neighbors, tap, identity):  # type: ignore
    return weight.new_empty(weight.shape[0])


class _Diagonal(torch.autograd.Function):
    """A quadratic form per point, q(w): its derivative along corner c is (q(w + c) - q(w - c)) / 2."""

    @staticmethod
    def forward(weight, index, order, neighbors, tap, identity):  # type: ignore
        return _diagonal(weight, index, order, neighbors, tap, identity)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.tap, ctx.identity = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        weight, *rest = ctx.saved_tensors
        if not torch.is_grad_enabled() and untraced(weight):
            slopes = empty(weight.shape, weight.dtype)
            index, order, neighbors = rest
            _diagonal_and_slopes(weight, index, order, neighbors, ctx.tap, ctx.identity, slopes)
            return (scaled_rows(slopes, g), *[None] * 5)
        columns = []
        for one in torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device):
            above, below = (_Diagonal.apply(weight + s * one, *rest, ctx.tap, ctx.identity) for s in (1, -1))
            columns.append(0.5 * g * (above - below))
        return (torch.stack(columns, -1), *[None] * 5)


def lattice_diagonal(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    """The diagonal of slice (blur + identity I) slice', (n,)."""
    arguments = (weight, index, order, neighbors, tap, identity)
    if differentiated(weight):
        return _Diagonal.apply(*arguments)  # type: ignore[return-value]
    return _diagonal_native(*arguments) if untraced(weight) else _diagonal(*arguments)


# --- separable ---------------------------------------------------------------------------------


@torch.library.custom_op("fwcrf::axis_filter", mutates_args=())
def _axis(x: Tensor, taps: Tensor, checked: bool) -> Tensor:
    return separable_torch.filter(x, taps)


@_axis.register_kernel("cpu")
def _axis_native(x, taps, checked):  # type: ignore
    if checked:
        check_finite(x, "x")
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    if x.numel():
        _core.filter_axis(x.detach(), taps.detach(), out, threads_for(x.numel() * taps.numel()))
    return out


@_axis.register_fake
def _(x, taps, checked):  # type: ignore
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_axis.register_vmap
def _(info, in_dims, x, taps, checked):  # type: ignore
    if in_dims[1] is not None:
        raise ValueError("vmap over a separable filter takes batches of x, not of taps.")
    x = x.movedim(in_dims[0], 0)
    return _axis(x.flatten(0, 1), taps, checked).unflatten(0, x.shape[:2]), 0


class _Axis(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, taps, checked):  # type: ignore
        return (_axis_native if untraced(x) else _axis)(x, taps, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, taps, _ = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, taps)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, taps = ctx.saved_tensors
        of_taps = _TapSlopes.apply(g, x, len(taps)) if ctx.needs_input_grad[1] else None
        return _Axis.apply(g, taps, False), of_taps, None  # type: ignore[return-value]


class _TapSlopes(torch.autograd.Function):
    """The derivative of <g, filtered x> in each tap: linear in both, and the filter is symmetric."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(g, x)
        found = torch.empty(count, dtype=torch.float64)
        given, values = g.detach().contiguous(), x.detach().contiguous()
        _core.tap_slopes(given, values, found, threads_for(2 * x.numel() * count))
        return found.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        g, x = ctx.saved_tensors
        return _Axis.apply(x, v, False), _Axis.apply(g, v, False), None  # type: ignore[return-value]


def separable_filter(x: Tensor, shape: Sequence[int], taps: Sequence[Tensor]) -> Tensor:
    """Symmetric taps along each grid axis of ``x`` (images, n, channels), zero outside the grid."""
    y = x
    for axis, half in enumerate(taps):
        outer = x.shape[0] * math.prod(shape[:axis])
        inner = math.prod(shape[axis + 1 :]) * x.shape[-1]
        arguments = (y.reshape(outer, shape[axis], inner), half, axis == 0)
        learned = half.requires_grad and torch.is_grad_enabled()
        if learned and (not untraced(x) or x.dtype != half.dtype):
            # Autograd sees through this one: gradients reach the taps, and so the bandwidths.
            y = separable_torch.filter(arguments[0], half)
        else:
            direct = _axis_native if untraced(x) else _axis
            y = _Axis.apply(*arguments) if learned or differentiated(x) else direct(*arguments)
    return y.reshape(x.shape)
