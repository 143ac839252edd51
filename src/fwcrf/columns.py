"""Few of the labels of an array: which ones matter, arrays of those alone, the largest one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels.ops import untraced
from fwcrf.memory import empty
from fwcrf.threads import threads_for


def spans(x: Tensor | None, unary: Tensor) -> tuple[Tensor, Tensor]:
    """Of each label, over all rows: the least lead of the best label by unary, and the largest x.

    If there is no x, a bound on softmax(-unary): none is larger than exp(-lead).

    >>> spans(torch.tensor([[0.2, 0.8], [0.9, 0.1]]), torch.tensor([[1.0, 0.0], [2.0, 5.0]]))
    (tensor([0., 0.]), tensor([0.9000, 0.8000]))
    """
    gap, most = unary.new_empty(2, unary.shape[-1])
    _core.label_spans(None if x is None else _rows(x), _rows(unary), gap, most, _threads(unary))
    return gap, torch.exp(-gap) if x is None else most


def take(x: Tensor, which: Tensor) -> Tensor:
    """x[..., which], for different columns.

    >>> take(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 2]))
    tensor([[1., 3.]])
    """
    return _Take.apply(x, which)  # type: ignore[return-value]


def spread(x: Tensor, which: Tensor, labels: int) -> Tensor:
    """The array with so many columns of which ``take`` gives x, the others 0.

    >>> spread(torch.tensor([[1.0, 3.0]]), torch.tensor([0, 2]), 3)
    tensor([[1., 0., 3.]])
    """
    return _Spread.apply(x, which, labels)  # type: ignore[return-value]


def start(unary: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """The columns ``kept`` of softmax(-unary) and of unary."""
    few, energies = (empty((*unary.shape[:-1], len(kept)), unary.dtype) for _ in range(2))
    _core.lump_columns(None, _rows(unary), kept, 0.0, _rows(few), _rows(energies), _threads(unary))
    return few, energies


def lump(x: Tensor | None, unary: Tensor, kept: Tensor, scale: float) -> tuple[Tensor | None, Tensor]:
    """x, or softmax(-unary), and unary with the columns ``kept`` and one for all others.

    There x is the sum of theirs, and exp(scale unary) that of their exponentials. Where there is no x and
    need not be one, there is none of this either: with a scale of -1 it is softmax(-unary) again.
    """
    shape = (*unary.shape[:-1], len(kept) + 1)
    few = None if x is None and scale == -1 else empty(shape, unary.dtype)
    energies = empty(shape, unary.dtype)
    given, found = (None if t is None else _rows(t) for t in (x, few))
    _core.lump_columns(given, _rows(unary), kept, scale, found, _rows(energies), _threads(unary))
    return few, energies


def unlump(few: Tensor, energies: Tensor, unary: Tensor, kept: Tensor, scale: float) -> Tensor:
    """The array with all columns of ``unary``: each of those that were taken together has its part."""
    out = empty(unary.shape, unary.dtype)
    _core.unlump_columns(_rows(unary), kept, scale, _rows(few), _rows(energies), _rows(out), _threads(out))
    return out


def largest(x: Tensor) -> Tensor:
    """``x.argmax(-1)``, the first of several.

    >>> largest(torch.tensor([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]))
    tensor([1, 0])
    """
    if not untraced(x) or x.dtype not in (torch.float32, torch.float64) or x.numel() == 0:
        return x.argmax(-1)
    out = empty(x.shape[:-1], torch.int64)
    _core.largest_columns(_rows(x), out.view(-1), _threads(x))
    return out


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, which: Tensor) -> Tensor:
        ctx.which, ctx.labels = which, x.shape[-1]
        out = empty((*x.shape[:-1], len(which)), x.dtype)
        _core.take_columns(_rows(x), which, _rows(out), _threads(x))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return spread(g, ctx.which, ctx.labels), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, which: Tensor, labels: int) -> Tensor:
        ctx.which = which
        out = empty((*x.shape[:-1], labels), x.dtype)
        _core.spread_columns(_rows(x), which, _rows(out), _threads(out))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return take(g, ctx.which), None, None


def _rows(x: Tensor) -> Tensor:
    return x.detach().contiguous().view(-1, x.shape[-1])


def _threads(x: Tensor) -> int:
    return threads_for(4 * x.numel())
