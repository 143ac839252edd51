"""The permutohedral lattice as torch operators: build, filter, diagonal, and the passes that normalise it.

The filter is linear in x and symmetric up to its order of blurs, so that its backward pass is the filter
again: derivatives of any order, torch.func and vmap. Forward mode raises an error: a Function with a rule
for it could not be compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.lattice_geometry import refuse_features
from fwcrf.torch_ops import lattice_device, lattice_torch
from fwcrf.torch_ops.native import (
    check_finite,
    differentiated,
    empty,
    empty_like,
    register,
    threads_for,
    untraced,
)
from fwcrf.torch_ops.precision import wide

# Sums below LEAST and ratios beyond MOST are noise, and so are their derivatives.
LEAST, MOST = 1e-6, 8.0
_TABLED = 6  # up to this many corners, one 64-bit word has a bit for every set of axes


# --- build -----------------------------------------------------------------------------------------


def build_lattice(features: Tensor, scale: Sequence[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``index`` and ``weight`` (batch, n, d + 1), packed ``order``, ``neighbors``; features (batch, n, d)."""
    index, weight, order, neighbors = _build(features.detach(), list(scale))
    if differentiated(features):
        weight = _Attach.apply(features, weight, order, scale)
    return index, weight, order, neighbors


def build_native(
    features: Tensor, scale: Sequence[float], *, single_within: float = 0.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``build_lattice`` by native code, without gradients.

    Points are embedded in float32 arithmetic if all lie within ``single_within`` of the origin, else in
    float64.
    """
    low, high = quotient_bounds(features, scale)
    d = features.shape[-1]
    single = max(map(abs, (*low, *high))) * (d + 1) < single_within
    words = _core.order_words(d + 1)
    index = empty((*features.shape[:-1], d + 1), torch.int32)
    weight = empty(index.shape, features.dtype)
    order = empty((*features.shape[:-1], words), torch.int64)
    neighbors = torch.from_numpy(
        _core.build_lattice(
            features.detach(), np.array(scale, dtype=np.float64), np.array(low), np.array(high),
            index, weight, order, threads_for(features.numel() * 8), single=single,
        )
    )  # fmt: skip
    return index, weight, order, neighbors


def quotient_bounds(features: Tensor, scale: Sequence[float]) -> tuple[list[int], list[int]]:
    """Bounds on the first d lattice quotients of all points, from bounds on the features."""
    d = features.shape[-1]
    rows = features.detach().reshape(-1, d)
    if rows.is_cpu:
        finite, lowest, highest = _core.feature_bounds(rows)
    else:
        # One wait for the device. NaN and infinity show in the extremes.
        extremes = torch.stack(rows.aminmax(dim=0)).cpu()
        finite = bool(torch.isfinite(extremes).all())
        lowest, highest = extremes.tolist()
    if not finite:
        refuse_features(int((~torch.isfinite(rows)).any(-1).sum()), len(rows))
    return _core.quotient_range(lowest, highest, scale)


def _build_portable(features: Tensor, scale: Sequence[float]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return lattice_device.build(features, scale, *quotient_bounds(features, scale))


def _build_fake(features: Tensor, scale: Sequence[float]) -> tuple[Tensor, ...]:
    batch, n, d = features.shape
    vertices = torch.library.get_ctx().new_dynamic_size(min=d + 1)
    return (
        features.new_empty(batch, n, d + 1, dtype=torch.int32),
        features.new_empty(batch, n, d + 1),
        features.new_empty(batch, n, _core.order_words(d + 1), dtype=torch.int64),
        features.new_empty(d + 1, vertices, 2, dtype=torch.int32),
    )


def _build_batched(info, in_dims, features, scale):  # type: ignore
    features = features.movedim(in_dims[0], 0)
    index, weight, order, neighbors = _build.registered(features.flatten(0, 1), scale)
    each = (t.unflatten(0, features.shape[:2]) for t in (index, weight, order))
    # One table of vertices for all calls.
    return (*each, neighbors), (0, 0, 0, None)


_build = register("build_lattice", _build_portable, build_native, fake=_build_fake, batched=_build_batched)


class _Attach(torch.autograd.Function):
    """The weights with their derivative in the features: inside a simplex, weights are linear in them."""

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
        (order,) = ctx.saved_tensors
        if torch.is_grad_enabled() or not untraced(g):
            return lattice_torch.embedding_adjoint(g, order, ctx.scale), None, None, None
        rows, d = g.numel() // g.shape[-1], g.shape[-1] - 1
        out = empty((*g.shape[:-1], d), g.dtype)
        _core.embedding_adjoint(
            g.contiguous().view(rows, d + 1), order.view(rows, -1), np.array(ctx.scale, dtype=np.float64),
            out.view(rows, d), threads_for(8 * out.numel()),
        )  # fmt: skip
        return out, None, None, None


# --- filter ----------------------------------------------------------------------------------------


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
    return _Filter.apply(*arguments) if differentiated(x, splat, slice, shift) else _filter(*arguments)


def _filter_portable(
    x: Tensor,  # (images, n, channels)
    index: Tensor,  # (n, corners)
    splat: Tensor,  # (n, corners)
    slice: Tensor | None,  # (n, corners); None if it is `splat`
    neighbors: Tensor,  # (corners, vertices, 2)
    shift: Tensor | None,  # (n)
    tap: float,
    identity: float,
    order: int,
    checked: bool,
) -> Tensor:
    # Values are not checked here: the host would wait for the device, in every step of a solver.
    return lattice_device.filter(x, index, splat, slice, neighbors, shift, tap, identity, order)


def _filter_native(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
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


def _filter_batched(info, in_dims, x, index, splat, slice, neighbors, shift, *rest):  # type: ignore
    if all(d is None for d in in_dims[1:]):
        x = x.movedim(in_dims[0], 0)
        tables = index, splat, slice, neighbors, shift
        return _filter.registered(x.flatten(0, 1), *tables, *rest).unflatten(0, x.shape[:2]), 0
    # The points of all calls in one axis, as for a batch of lattices.
    x = _calls_first(info, in_dims[0], x).movedim(0, 1)  # type: ignore[union-attr]
    dims = (in_dims[1], in_dims[2], in_dims[3], in_dims[5])
    given = (_calls_first(info, d, t) for d, t in zip(dims, (index, splat, slice, shift), strict=True))
    index, splat, slice, shift = (None if t is None else t.flatten(0, 1) for t in given)
    y = _filter.registered(x.flatten(1, 2), index, splat, slice, neighbors, shift, *rest)
    return y.unflatten(1, x.shape[1:3]), 1


def _calls_first(info, dim, t):  # type: ignore
    """A tensor with the axis of torch.vmap in front, of equal entries if it has none."""
    if t is None:
        return None
    return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)


_filter = register("lattice_filter", _filter_portable, _filter_native, batched=_filter_batched)
_TRANSPOSED = {0: 0, 1: 2, 2: 1}


class _Filter(torch.autograd.Function):
    """The filter; its derivative in the weight of a corner is the filter with that weight 1, the rest 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, index, splat, slice, neighbors, shift, tap, identity, order, checked):  # type: ignore
        return _filter(x, index, splat, slice, neighbors, shift, tap, identity, order, checked)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, index, splat, slice, neighbors, shift, ctx.tap, ctx.identity, ctx.order, _ = inputs
        ctx.learned = any(ctx.needs_input_grad[i] for i in (2, 3, 5))
        ctx.save_for_backward(x if ctx.learned else None, index, splat, slice, neighbors, shift)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, index, splat, slice, neighbors, shift = ctx.saved_tensors
        order, back = ctx.order, _TRANSPOSED[ctx.order]

        # Gradients may overflow on purpose (loss scaling), so their values are not checked.
        def filtered(v, splat, slice, shift, order):  # type: ignore
            return _Filter.apply(
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
        if ctx.learned and slice is None and order == 0 and untraced(g) and not differentiated(g, x, splat):
            of_splat, of_shift = torch.zeros_like(splat), torch.zeros_like(splat[:, 0])
            add_filter_slopes(x, g, None, index, splat, neighbors, ctx.tap, ctx.identity, of_splat, of_shift)
            grads[2], grads[5] = of_splat, None if shift is None else of_shift
        elif ctx.learned:
            if ctx.needs_input_grad[2]:
                grads[2] = corners(x, g, splat if slice is None else slice, back)
                if slice is None:
                    grads[2] = grads[2] + corners(g, x, splat, order)
            if ctx.needs_input_grad[3]:
                grads[3] = corners(g, x, splat, order)
            if ctx.needs_input_grad[5]:
                grads[5] = (g * x).sum((0, -1))
        return tuple(grads)


def add_filter_slopes(
    x: Tensor,
    g: Tensor,
    matrix: Tensor | None,
    index: Tensor,
    splat: Tensor,
    neighbors: Tensor,
    tap: float,
    identity: float,
    of_weights: Tensor,
    of_shift: Tensor,
) -> None:
    """Add the derivatives of <g, filtered x M> in the weights and the shift, of a symmetric filter and M.

    They are ``(n, corners)`` and ``(n)``. M is the identity if ``matrix`` is None.
    """
    for parts in _panels(g, x, matrix):
        _add_corner_dots(*parts, index, splat, neighbors, tap, identity, 0, of_weights, of_shift)


def add_row_products(x: Tensor, g: Tensor, matrix: Tensor | None, out: Tensor) -> None:
    """Add <g_i, x_i M> to ``out``: of each image, or summed over all images if ``out`` has no batch."""
    n = x.shape[-2]
    g, x = (t.reshape(-1, *t.shape[-2:]) for t in (g, x))
    for left, values, M in _panels(g, x, matrix):
        _core.row_products(left, values, M, out.view(-1, n), threads_for(4 * values.numel()))


_CHANNELS = {torch.float32: 4 * _core.ModelF32.lanes(), torch.float64: 4 * _core.ModelF64.lanes()}


def _panels(
    left: Tensor, v: Tensor, matrix: Tensor | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """``left`` and v in panels of as many channels as native code takes, and the matrix if there is one."""
    left, v, most = left.detach(), v.detach(), _CHANNELS[v.dtype]
    if matrix is not None and v.shape[-1] > most:
        v, matrix = v @ matrix, None
    for lefts, values in zip(left.split(most, -1), v.split(most, -1), strict=True):
        yield lefts.contiguous(), values.contiguous(), matrix if matrix is None else matrix.contiguous()


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
    for parts in _panels(left, v):
        _add_corner_dots(*parts, index, splat, neighbors, tap, identity, order, out, None)
    return out


def _add_corner_dots(
    left: Tensor,
    v: Tensor,
    matrix: Tensor | None,
    index: Tensor,
    splat: Tensor,
    neighbors: Tensor,
    tap: float,
    identity: float,
    order: int,
    dots: Tensor,
    products: Tensor | None,
) -> None:
    _core.corner_dots(
        left, v, matrix, index, splat.detach().contiguous(), neighbors, tap, identity, order, dots, products,
        threads_for(v[0].numel() * index.shape[-1]),
    )  # fmt: skip


# --- passes over the weights -----------------------------------------------------------------------


def placed(weight: Tensor, exponent: float, factor: Tensor) -> Tensor:
    """factor exp(exponent |w|^2) w, for the weights w of each point on the last axis.

    ``factor`` has one number for each image: ``(*batch, 1)``.
    """
    learned = differentiated(weight, factor)
    found = None if learned or untraced(weight) else lattice_device.placed(weight, exponent, factor)
    if found is not None:
        return found
    if not untraced(weight) or learned:
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
    """Sums of the first ``rows`` points over the rest, by the exact kernel and by ``placed`` weights.

    Both are ``(*batch, rows)``. None if torch traces or differentiates the call.
    """
    if not untraced(features) or differentiated(features, weight):
        return None
    flat = features.detach().reshape(-1, *features.shape[-2:]).contiguous()
    threads = threads_for(4 * rows * len(points) * len(flat))
    exact, approximate = (features.new_empty(*features.shape[:-2], rows) for _ in range(2))
    _core.sampled_sums(
        flat, points, rows, index.view(*flat.shape[:-1], -1), weight.detach().view(*flat.shape[:-1], -1),
        neighbors, exponent, tap, identity, order, exact.view(-1, rows), approximate.view(-1, rows), threads,
    )  # fmt: skip
    return exact, approximate


def fitted_scale(exact: Tensor, approximate: Tensor, fallback: float, dtype: torch.dtype) -> Tensor:
    """The factor ``(*batch, 1)`` by which approximate sums fit exact sums best, both ``(*batch, rows)``.

    ``fallback`` if the approximate sums are almost 0: no pair of the sample is near.
    """
    on_device = not exact.is_cpu and exact.dtype == approximate.dtype == dtype
    if on_device and not differentiated(exact, approximate):
        found = lattice_device.fitted(exact, approximate, fallback, LEAST, MOST)
        if found is not None:
            return found
    exact, sums = (t.double() if t.is_cpu else wide(t) for t in (exact, approximate))
    # Far-apart points meet only in the tails of the kernel, where the ratio means nothing.
    fitted = ratio((sums * exact).sum(-1, keepdim=True), sums.square().sum(-1, keepdim=True), fallback)
    return fitted.clamp(fallback / MOST, fallback * MOST).to(dtype)


def ratio(over: Tensor, under: Tensor, fallback: float) -> Tensor:
    """over / under; ``fallback`` if ``under`` is at most ``LEAST``."""
    known = under > LEAST
    return torch.where(known, over / torch.where(known, under, 1.0), fallback)


def symmetric_lattice(
    index: Tensor,
    weight: Tensor,
    order: Tensor,
    neighbors: Tensor,
    factor: Tensor,
    exponent: float,
    tap: float,
    identity: float,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """``placed`` weights of a kernel with ones on its diagonal, divided by the roots of its row sums.

    Also two diagonals. The first one, added to the kernel of the weights, completes the normalised kernel;
    the second one removes the self-edges instead. None if torch traces or differentiates the call, or for
    more corners than the native code takes.
    """
    if differentiated(weight, factor) or not weight.numel():
        return None
    if not untraced(weight):
        return lattice_device.symmetric(index, weight, order, neighbors, factor, exponent, tap, identity)
    if weight.shape[-1] > _TABLED:
        return None
    out, rows = empty(weight.shape, weight.dtype), weight.shape[-2:]
    shift, minus = empty_like(weight[..., 0], 2)
    given = weight.detach().contiguous().view(-1, *rows)
    _core.normalize(
        index.view(-1, *rows), given, order.view(-1, rows[0], 1), neighbors,
        factor.detach().contiguous().view(-1), exponent, tap, identity, out.view(-1, *rows),
        shift.view(-1, rows[0]), minus.view(-1, rows[0]), threads_for(32 * out.numel()),
    )  # fmt: skip
    return out, shift, minus


def image_lattice(
    values: Tensor,
    dtype: torch.dtype,
    grid: Sequence[int],
    scales: Sequence[float],
    origin: Sequence[int],
    scale: Sequence[float],
    sample: tuple[np.ndarray, int],
    place: float,
    constant: float,
    tap: float,
    identity: float,
) -> tuple[np.ndarray, Tensor, Tensor, Tensor, Tensor] | None:
    """``neighbors``, ``index``, and the results of ``symmetric_lattice``, of the pixels of images.

    From values ``(*batch, n, channels)``, bytes or numbers of ``dtype``, in one native call. ``scales`` are
    the bandwidths of axes and channels, ``origin`` the coordinates of the first pixel, () for zeros;
    ``sample`` is that of ``sampled_sums``. None if a feature is not finite, or for more corners than the
    native code takes.
    """
    corners = len(scales) + 1
    if corners > _TABLED:
        return None
    flat = values.unsqueeze(0) if values.dim() == 2 else values.flatten(0, -3)
    *batch, n, _ = values.shape
    weight, index = empty((*batch, n, corners), dtype), empty((*batch, n, corners), torch.int32)
    shift, minus = empty_like(weight[..., 0], 2)
    rows = (len(flat), n)
    neighbors = _core.image_lattice(
        flat.numpy(), grid, scales, origin, scale, *sample, 0.5 * place, constant, tap, identity, LEAST, MOST,
        index.view(*rows, corners).numpy(), weight.view(*rows, corners).numpy(), shift.view(rows).numpy(),
        minus.view(rows).numpy(), threads_for(8 * n * len(flat) * corners),
    )  # fmt: skip
    return None if neighbors is None else (neighbors, index, weight, shift, minus)


def scaled_rows(weight: Tensor, factor: Tensor) -> Tensor:
    """factor_i w_i, for the weights w of each point on the last axis."""
    return scaled_both_ways(weight, factor, [])[0]


def scaled_both_ways(
    weight: Tensor, factor: Tensor, diagonals: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """``scaled_rows``, and factor_i^2 t_i for up to two diagonals t."""
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


# --- diagonal --------------------------------------------------------------------------------------


def lattice_diagonal(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    """The diagonal of slice (blur + identity I) slice', (n,)."""
    arguments = (weight, index, order, neighbors, tap, identity)
    return _Diagonal.apply(*arguments) if differentiated(weight) else _diagonal(*arguments)  # type: ignore


def _diagonal_portable(
    weight: Tensor, index: Tensor, order: Tensor, neighbors: Tensor, tap: float, identity: float
) -> Tensor:
    return lattice_device.diagonal(weight, index, order, neighbors, tap, identity)


def _diagonal_native(weight, index, order, neighbors, tap, identity, slopes=None):  # type: ignore
    out = empty(weight.shape[:1], weight.dtype)
    weight = weight.detach().contiguous()
    _core.diagonal(index, weight, order, neighbors, tap, identity, out, slopes, threads_for(32 * out.numel()))
    return out


def _diagonal_fake(weight: Tensor, *_: Any) -> Tensor:
    return weight.new_empty(weight.shape[0])


def _diagonal_batched(info, in_dims, weight, index, order, neighbors, *rest):  # type: ignore
    given = [_calls_first(info, d, t) for d, t in zip(in_dims[:3], (weight, index, order), strict=True)]
    flat = _diagonal.registered(*(t.flatten(0, 1) for t in given), neighbors, *rest)  # type: ignore
    return flat.unflatten(0, given[0].shape[:2]), 0  # type: ignore[union-attr]


_diagonal = register(
    "lattice_diagonal", _diagonal_portable, _diagonal_native, fake=_diagonal_fake, batched=_diagonal_batched
)


class _Diagonal(torch.autograd.Function):
    """A quadratic form per point, q(w): its derivative along corner c is (q(w + c) - q(w - c)) / 2."""

    generate_vmap_rule = True

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
            _diagonal_native(weight, index, order, neighbors, ctx.tap, ctx.identity, slopes)
            return (scaled_rows(slopes, g), *[None] * 5)
        columns = []
        for one in torch.eye(weight.shape[-1], dtype=weight.dtype, device=weight.device):
            above, below = (_Diagonal.apply(weight + s * one, *rest, ctx.tap, ctx.identity) for s in (1, -1))
            columns.append(0.5 * g * (above - below))
        return (torch.stack(columns, -1), *[None] * 5)
