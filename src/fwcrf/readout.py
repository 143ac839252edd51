"""From probabilities to what the layer answers with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels.ops import differentiated, untraced
from fwcrf.memory import empty
from fwcrf.threads import threads_for


def log_probabilities(x: Tensor, epsilon: float, grid: Sequence[int], *, single: bool = False) -> Tensor:
    """log((1 - epsilon) x + epsilon / L), from ``(*batch, n, L)`` to ``(*batch, L, *grid)``.

    With ``single``, of two labels: one logit per pixel, the difference of both.

    >>> log_probabilities(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), 0.5, (2,)).exp()
    tensor([[0.7500, 0.5000],
            [0.2500, 0.5000]])
    """
    log_p = _log(x, 1 - epsilon, epsilon / x.shape[-1])
    if single:
        log_p = log_p[..., 1:, :] - log_p[..., :1, :]
    return log_p.unflatten(-1, tuple(grid))


def _log(x: Tensor, a: float, b: float) -> Tensor:
    """log(a x + b), labels before pixels."""
    if not untraced(x) or x.dtype not in (torch.float32, torch.float64):
        return torch.log(a * x + b).mT.contiguous()
    return _Log.apply(x, a, b) if differentiated(x) else _native(_core.log_line, x, settings=(a, b))  # type: ignore[return-value]


def _native(function: Callable[..., None], *inputs: Tensor, settings: tuple[float, float]) -> Tensor:
    """What a native function makes of arrays, with the last two axes of the first exchanged."""
    *batch, rows, columns = inputs[0].shape
    out = empty((*batch, columns, rows), inputs[0].dtype)
    if out.numel():
        given = (t.detach().contiguous().view(-1, *t.shape[-2:]) for t in inputs)
        function(*given, *settings, out.view(-1, columns, rows), threads_for(8 * out.numel()))
    return out


class _Log(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, a: float, b: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.settings = a, b
        return _native(_core.log_line, x, settings=ctx.settings)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        if not torch.is_grad_enabled() and untraced(g):
            return _native(_core.log_line_derivative, g, x, settings=ctx.settings), None, None
        a, b = ctx.settings
        return a * g.mT / (a * x + b), None, None
