"""Passes that change the layout of labels: scores to energies, transposes, log-probabilities, argmax.

Networks keep labels before pixels, ``(*batch, L, n)``; the library keeps them last, ``(*batch, n, L)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops.blends import blend
from fwcrf.torch_ops.magnitudes import ENERGY
from fwcrf.torch_ops.native import (
    FLOATS,
    differentiated,
    empty,
    has_values,
    threads_for,
    transformed,
    untraced,
)

# --- scores to energies ----------------------------------------------------------------------------


class Extent(NamedTuple):
    """Minimum and maximum of scores, and of their sums over the labels. Undefined if a score is NaN.

    The sums of logits are NaN where native code has not computed them on the way.
    """

    ordinary: bool  # all are finite, and at most ``magnitudes.ENERGY``
    least: float
    most: float
    lowest_sum: float
    highest_sum: float


def unary_from_scores(
    scores: Tensor, *, labels_last: bool = False, floor: float | None = None
) -> tuple[Tensor, Extent | None]:
    """u = -scores ``(*batch, n, L)`` of logits, or u = -log max(scores, floor) of probabilities.

    Scores are ``(*batch, L, n)``, or ``(*batch, n, L)`` with ``labels_last``. The extent of the scores is
    None if their values cannot be read. This is the one place where scores become energies.

    >>> unary_from_scores(torch.tensor([[0.25, 0.5], [0.75, 0.5]]), floor=1e-8)
    (tensor([[1.3863, 0.2877],
            [0.6931, 0.6931]]), Extent(ordinary=True, least=0.25, most=0.75, lowest_sum=1.0, highest_sum=1.0))
    """
    plain = scores.dim() > 1 and scores.numel() and scores.dtype in FLOATS
    if not plain or not untraced(scores):
        return _unary_portable(scores, labels_last, floor)
    if not differentiated(scores):
        return _unary_native(scores, labels_last, floor)
    if floor is not None:
        return _unary_portable(scores, labels_last, floor)
    return _UnaryFromLogits.apply(scores, labels_last)  # type: ignore[return-value]


def _unary_native(
    scores: Tensor,
    labels_last: bool,
    floor: float | None,
    scale: float = 1.0,
    offset: Tensor | None = None,
) -> tuple[Tensor, Extent]:
    *batch, rows, columns = scores.shape
    shape = (*batch, rows, columns) if labels_last else (*batch, columns, rows)
    out, threads = empty(shape, scores.dtype), threads_for(4 * scores.numel())
    # As numpy arrays, which native code takes in a third of the time of tensors.
    given = scores.detach().contiguous().numpy().reshape(-1, rows, columns)
    flat = out.numpy().reshape(-1, *shape[-2:])
    least = floor or 1.0
    offsets = None if offset is None else offset.detach().numpy()
    finite, *range_ = _core.energies(
        given, labels_last, floor is not None, least, flat, threads, scale, offsets
    )
    return out, Extent(finite and range_[0] >= -ENERGY and range_[1] <= ENERGY, *range_)


def _unary_portable(scores: Tensor, labels_last: bool, floor: float | None) -> tuple[Tensor, Extent | None]:
    last = scores if labels_last else scores.mT
    if floor is None and not scores.is_cpu and not differentiated(scores) and not transformed(scores):
        unary = torch.neg(last.detach(), out=last.new_empty(last.shape))
    else:
        unary = -(last if floor is None else last.clamp(min=floor).log()).contiguous()
    if scores.numel() == 0 or not has_values(scores):
        return unary, None
    given = last.detach()
    # Sums of logits mean nothing. On a GPU the host waits once.
    sums = () if floor is None else given.sum(-1).aminmax()
    least, most, *sums = torch.stack([*given.aminmax(), *sums]).cpu().tolist()
    return unary, Extent(least >= -ENERGY and most <= ENERGY, least, most, *(sums or (math.nan, math.nan)))


class _UnaryFromLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels_last: bool) -> tuple[Tensor, Extent]:
        ctx.labels_last = labels_last
        return _unary_native(logits, labels_last, None)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: None) -> tuple[Tensor, None]:  # type: ignore[override]
        return (unary_from_scores(g, labels_last=True)[0] if ctx.labels_last else transposed(g, -1.0)), None


_MOST_SUMMED = 64  # labels, whose sums native code keeps while it transposes


def unary_from_affine(scores: Tensor, scale: float | Tensor, offset: Tensor) -> Tensor | None:
    """u = -(scale s + offset) of logits s, ``(*batch, L, n)``, as ``(*batch, n, L)``, in one pass.

    ``scale`` is one number and ``offset`` one per label. None where native code does not compute it, or where
    a score is not ordinary: see ``Extent``.
    """
    plain = scores.dim() > 1 and scores.numel() and scores.dtype in FLOATS
    if not plain or scores.shape[-2] > _MOST_SUMMED or not untraced(scores):
        return None
    scale = torch.as_tensor(scale, dtype=scores.dtype, device="cpu")
    unary, extent = _UnaryFromAffine.apply(scores, scale, offset.to(scores))  # type: ignore[misc]
    return unary if extent.ordinary else None


class _UnaryFromAffine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, scale: Tensor, offset: Tensor) -> tuple[Tensor, Extent]:
        ctx.save_for_backward(scores, scale)
        return _unary_native(scores, False, None, scale.item(), offset)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: None) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        scores, scale = ctx.saved_tensors
        if torch.is_grad_enabled() or not untraced(g):
            turned = -g.mT
            sums = turned.sum(-1)
            return scale * turned, (turned * scores).sum(), sums.reshape(-1, sums.shape[-1]).sum(0)
        out = empty(scores.shape, scores.dtype)
        sums = torch.zeros(scores.shape[-2] + 1, dtype=torch.float64, device="cpu")
        threads = threads_for(2 * g.numel())
        _core.transpose_and_sum(_flat(g), _flat(scores), -scale.item(), _flat(out), sums, threads)
        return out, -sums[-1].to(scale), -sums[:-1].to(scale)


# --- transposes ------------------------------------------------------------------------------------


def transposed(x: Tensor, factor: float = 1.0) -> Tensor:
    """``factor * x.mT``, contiguous."""
    if not _is_plain(x) or transformed(x):
        return (x.mT if factor == 1 else factor * x.mT).contiguous()
    return _Transpose.apply(x, factor) if differentiated(x) else _transpose(x, factor)  # type: ignore[return-value]


def put_transposed(x: Tensor, out: Tensor, factor: float = 1.0) -> None:
    """Write ``factor * x.mT`` to ``out``."""
    if _is_plain(x) and out.is_cpu and out.dtype == x.dtype and out.is_contiguous() and x.numel():
        flat = x.detach().contiguous().view(-1, *x.shape[-2:])
        _core.transpose(flat, out.view(-1, *out.shape[-2:]), threads_for(x.numel()), factor)
    else:
        torch.mul(x.mT, factor, out=out)


def put_transposed_and_argmax(x: Tensor, out: Tensor, labels: Tensor) -> bool:
    """Write ``x.mT`` to ``out`` and ``x.argmax(-1)`` to ``labels`` in one pass; False if it cannot.

    >>> x, out, labels = torch.tensor([[0.2, 0.8]]), torch.empty(2, 1), torch.empty(1, dtype=torch.int64)
    >>> put_transposed_and_argmax(x, out, labels), out.T, labels
    (True, tensor([[0.2000, 0.8000]]), tensor([1]))
    """
    made = (out, x.dtype), (labels, torch.int64)
    if not _is_plain(x) or not all(t.is_cpu and t.dtype == d and t.is_contiguous() for t, d in made):
        return False
    if x.numel():
        n, length = x.shape[-2:]
        given = x.detach().contiguous().view(-1, n, length)
        _core.transpose_and_argmax(
            given, out.view(-1, length, n), labels.view(-1, n), threads_for(4 * x.numel())
        )
    return True


def _is_plain(x: Tensor) -> bool:
    return x.is_cpu and x.dtype in FLOATS


def _transpose(x: Tensor, factor: float) -> Tensor:
    shape, threads = (x.shape[-1], x.shape[-2]), threads_for(x.numel())
    out = empty((*x.shape[:-2], *shape), x.dtype)
    if x.numel():
        _core.transpose(
            x.detach().contiguous().view(-1, *x.shape[-2:]), out.view(-1, *shape), threads, factor
        )
    return out


class _Transpose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return _transpose(x, factor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return transposed(g, ctx.factor), None


# --- argmax ----------------------------------------------------------------------------------------


def argmax(x: Tensor) -> Tensor:
    """``x.argmax(-1)``; of several equal entries, the first.

    >>> argmax(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]))
    tensor([1, 0])
    """
    if x.numel() == 0 or x.dtype not in FLOATS or not untraced(x):
        return x.argmax(-1)
    out = empty(x.shape[:-1], torch.int64)
    rows = x.detach().contiguous().numpy().reshape(-1, x.shape[-1])
    _core.argmax(rows, out.numpy().reshape(-1), threads_for(4 * x.numel()))
    return out


# --- probabilities to log-probabilities ------------------------------------------------------------


def log_probabilities(
    x: Tensor,
    epsilon: float,
    grid: Sequence[int],
    *,
    single: bool = False,
    other: Tensor | None = None,
    share: Tensor | None = None,
) -> Tensor:
    """log((1 - epsilon) x + epsilon / L), from ``(*batch, n, L)`` to ``(*batch, L, *grid)``.

    With ``single``, for two labels: one logit per pixel, the difference of both. With ``other`` and its
    ``share``, one number, (1 - share) x + share other takes the place of x.

    >>> log_probabilities(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), 0.5, (2,)).exp()
    tensor([[0.7500, 0.5000],
            [0.2500, 0.5000]])
    """
    a, b = 1 - epsilon, epsilon / x.shape[-1]
    if other is None or share is None:
        log_p = _log(x, a, b)
    elif x.dtype in FLOATS and untraced(x):
        log_p: Tensor = _BlendLog.apply(x, other, share, a, b)  # type: ignore[assignment]
    else:
        log_p = _log(blend(x, other, share), a, b)
    if single:
        log_p = log_p[..., 1:, :] - log_p[..., :1, :]
    return log_p.unflatten(-1, tuple(grid))


def _log(x: Tensor, a: float, b: float) -> Tensor:
    """log(a x + b), labels before pixels."""
    if x.dtype not in FLOATS or not untraced(x):
        return torch.log(a * x + b).mT.contiguous()
    return _Log.apply(x, a, b) if differentiated(x) else _turned(_core.transpose_log, x, settings=(a, b))  # type: ignore[return-value]


def _flat(t: Tensor) -> Tensor:
    """One batch axis, for native code."""
    return t.detach().contiguous().view(-1, *t.shape[-2:])


def _turned(function: Callable[..., None], *inputs: Tensor, settings: tuple[float, ...]) -> Tensor:
    """The result of a native function whose output has the last two axes of its first input exchanged."""
    *batch, rows, columns = inputs[0].shape
    out, threads = (
        empty((*batch, columns, rows), inputs[0].dtype),
        threads_for(8 * math.prod(inputs[0].shape)),
    )
    if out.numel():
        function(*map(_flat, inputs), *settings, out.view(-1, columns, rows), threads)
    return out


class _Log(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: float, b: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.settings = a, b
        return _turned(_core.transpose_log, x, settings=ctx.settings)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        if not torch.is_grad_enabled() and untraced(g):
            return _turned(_core.transpose_log_derivative, g, x, settings=ctx.settings), None, None
        a, b = ctx.settings
        return a * g.mT / (a * x + b), None, None


class _BlendLog(torch.autograd.Function):
    """log(a ((1 - share) x + share y) + b), labels before pixels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, share: Tensor, a: float, b: float) -> Tensor:
        ctx.save_for_backward(x, y, share)
        ctx.settings = a, b
        return _turned(_core.transpose_blend_log, x, y, settings=(share.item(), a, b))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, y, share = ctx.saved_tensors
        a, b = ctx.settings
        if torch.is_grad_enabled() or not untraced(g):
            d = a * g.mT / (a * torch.lerp(x, y, share) + b)
            of_y = share * d
            return d - of_y, of_y, (d * (y - x)).sum(), None, None
        of_x, of_y, of_share = empty(x.shape, x.dtype), empty(x.shape, x.dtype), 0.0
        if x.numel():
            of_share = _core.blend_log_derivative(
                _flat(g), _flat(x), _flat(y), share.item(), a, b, _flat(of_x), _flat(of_y),
                threads_for(8 * x.numel()),
            )  # fmt: skip
        return of_x, of_y, share.new_tensor(of_share), None, None
