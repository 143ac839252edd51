"""From probabilities to what the layer answers with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fwcrf.kernels.ops import differentiated, untraced
from fwcrf.layout import labels_first
from fwcrf.memory import empty


def log_probabilities(x: Tensor, epsilon: float, grid: Sequence[int], *, single: bool = False) -> Tensor:
    """log((1 - epsilon) x + epsilon / L), from ``(*batch, n, L)`` to ``(*batch, L, *grid)``.

    With ``single``, of two labels: one logit per pixel, the difference of both.

    >>> log_probabilities(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), 0.5, (2,)).exp()
    tensor([[0.7500, 0.5000],
            [0.2500, 0.5000]])
    """
    log_p = _log(x, 1 - epsilon, epsilon / x.shape[-1])
    if single:
        log_p = log_p[..., 1:] - log_p[..., :1]
    return labels_first(log_p, grid)


def _log(x: Tensor, a: float, b: float) -> Tensor:
    if not untraced(x):
        return torch.log(a * x + b)
    return _Log.apply(x, a, b) if differentiated(x) else _line(x, a, b).log_()  # type: ignore[return-value]


def _line(x: Tensor, a: float, b: float) -> Tensor:
    """a x + b in memory that is kept for reuse."""
    return torch.mul(x.detach(), a, out=empty(x.shape, x.dtype)).add_(b)


class _Log(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: float, b: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.a, ctx.b = a, b
        return _line(x, a, b).log_()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return ctx.a * g / (ctx.a * x + ctx.b), None, None
        line = _line(x, ctx.a, ctx.b)
        return torch.div(g, line, out=line).mul_(ctx.a), None, None
