"""Few of the labels of an array: which ones matter, and arrays of those alone."""

from __future__ import annotations

from torch import Tensor

from fwcrf import _core
from fwcrf.memory import empty
from fwcrf.threads import threads_for


def spans(x: Tensor, unary: Tensor) -> tuple[Tensor, Tensor]:
    """Of each label, over all rows: the least lead of the best label by unary, and the largest x."""
    gap, most = x.new_empty(x.shape[-1]), x.new_empty(x.shape[-1])
    _core.label_spans(_rows(x), _rows(unary), gap, most, _threads(x))
    return gap, most


def take(x: Tensor, which: Tensor) -> Tensor:
    """x[..., which]."""
    out = empty((*x.shape[:-1], len(which)), x.dtype)
    _core.take_columns(_rows(x), which, _rows(out), _threads(x))
    return out


def spread(x: Tensor, which: Tensor, out: Tensor) -> None:
    """out[..., which] = x, and 0 elsewhere."""
    _core.spread_columns(_rows(x), which, _rows(out), _threads(out))


def _rows(x: Tensor) -> Tensor:
    return x.detach().contiguous().view(-1, x.shape[-1])


def _threads(x: Tensor) -> int:
    return threads_for(4 * x.numel())
