"""Unary energies of a network's scores, in one native pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels.ops import differentiated, untraced
from fwcrf.layout import transposed
from fwcrf.memory import empty
from fwcrf.threads import threads_for


class Extent(NamedTuple):
    """What scores are like: their extremes, and those of their sums over the labels, unless some are NaN."""

    finite: bool
    least: float
    most: float
    lowest_sum: float
    highest_sum: float


def energies(
    scores: Tensor, *, labels_last: bool = False, least: float | None = None
) -> tuple[Tensor, Extent] | None:
    """-scores, ``(*batch, n, L)``, of logits ``(*batch, L, n)``, or ``(*batch, n, L)`` with ``labels_last``.

    With ``least``, -log max(scores, least), of probabilities. None where torch has to see what is done, as
    for derivatives of anything but logits with their labels first.

    >>> energies(torch.tensor([[0.25, 0.5], [0.75, 0.5]]), least=1e-8)
    (tensor([[1.3863, 0.2877],
            [0.6931, 0.6931]]), Extent(finite=True, least=0.25, most=0.75, lowest_sum=1.0, highest_sum=1.0))
    """
    if scores.dtype not in (torch.float32, torch.float64) or scores.numel() == 0:
        return None
    if not untraced(scores):
        return None
    if differentiated(scores):
        return None if labels_last or least is not None else _OfLogits.apply(scores)  # type: ignore[return-value]
    return _energies(scores, labels_last, least)


def _energies(scores: Tensor, labels_last: bool, least: float | None) -> tuple[Tensor, Extent]:
    *batch, rows, columns = scores.shape
    shape = (*batch, rows, columns) if labels_last else (*batch, columns, rows)
    out = empty(shape, scores.dtype)
    given = scores.detach().contiguous().view(-1, rows, columns)
    threads = threads_for(4 * out.numel())
    flat = out.view(-1, *shape[-2:])
    seen = _core.energies(given, labels_last, least is not None, least or 1.0, flat, threads)
    return out, Extent(*seen)


class _OfLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> tuple[Tensor, Extent]:
        return _energies(logits, labels_last=False, least=None)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: None) -> Tensor:  # type: ignore[override]
        return transposed(g, -1.0)
