"""Maps to the simplex, row by row over the last axis: the oracles of the two common regularizers.

Both multiply their argument by ``scale`` on the way, so that an oracle, the map of ``-c / weight``, reads c
once. Entries of minus infinity become 0 if another entry of their row is finite. A row with NaN, with plus
infinity or with nothing but minus infinity has NaN in its result.

Each map is a custom operator inside an autograd Function. Its derivative at p is an operator too, a symmetric
matrix per row applied to d, so that it is its own backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops import triton_engine
from fwcrf.torch_ops.native import NativeOperator, differentiated, empty, register, threads_for
from fwcrf.torch_ops.precision import running_sums


def project_onto_simplex(v: Tensor, scale: float = 1.0) -> Tensor:
    """The point of the simplex nearest to ``scale * v``, for each row of ``v`` of shape ``(*, L)``.

    argmin_p |p - scale v|^2 over p >= 0 with sum 1, which is max(scale v - t, 0) with the t that makes the
    sum 1. Its derivative subtracts the mean over the support {p > 0}.

    >>> project_onto_simplex(torch.tensor([0.5, 2.0, 1.5]))
    tensor([0.0000, 0.7500, 0.2500])
    """
    return _rows("project", v, scale)


def softmax(v: Tensor, scale: float = 1.0) -> Tensor:
    """exp(scale v) over its sum, for each row of ``v`` of shape ``(*, L)``.

    argmin_p sum p log p - <scale v, p> over p >= 0 with sum 1. On the CPU, an exponential
    below the smallest normal number, relative to the largest of its row, becomes 0.

    >>> softmax(torch.tensor([0.0, 1.0, float("inf")]), scale=-1.0)
    tensor([0.7311, 0.2689, 0.0000])
    """
    return _rows("softmax", v, scale)


def _rows(name: str, v: Tensor, scale: float) -> Tensor:
    if not v.is_floating_point():
        raise TypeError(f"v has dtype {v.dtype}; expected floating point. Convert it, for example v.float().")
    if v.dim() == 0 or v.shape[-1] == 0:
        raise ValueError(f"v has shape {tuple(v.shape)}; expected (*, L) with at least one entry per row.")
    wide = v.float() if v.dtype in (torch.float16, torch.bfloat16) else v
    p = _RowMap.apply(wide, scale, name) if differentiated(v) else _MAPS[name][0](wide, scale)
    return p.to(v.dtype)


def _call(function: Callable[..., None]) -> Callable[..., Tensor]:
    """A call of a native function on the rows of one or two arrays and a scale."""

    def native(*arguments: Any) -> Tensor:
        *inputs, scale = arguments
        shape, dtype = inputs[0].shape, inputs[0].dtype
        out = empty(shape, dtype)
        if out.numel():
            rows = (t.detach().contiguous().view(-1, shape[-1]) for t in inputs)
            # About eight operations per entry.
            function(*rows, scale, out.view(-1, shape[-1]), threads_for(8 * out.numel()))
        return out

    return native


def _register(name: str, portable: Callable[..., Tensor], function: Callable[..., None]) -> NativeOperator:
    def batched(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        *tensors, scale = arguments
        first = [
            t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip(tensors, in_dims[:-1], strict=True)
        ]
        return operator.registered(*first, scale), 0

    operator = register(name, portable, _call(function), batched=batched)
    return operator


# --- projection --------------------------------------------------------------------------------


def _project_on_device(v: Tensor, scale: float) -> Tensor:
    if triton_engine.serves(v):
        from fwcrf.torch_ops import rows_triton

        if rows_triton.takes(v):
            return rows_triton.project(v, scale)
    return project_portable(v, scale)


def project_portable(v: Tensor, scale: float) -> Tensor:
    """``project_onto_simplex`` in plain torch operations."""
    u = v * scale
    # Relative to the largest entry, which loses no digit that matters.
    u = u - u.amax(-1, keepdim=True)
    descending = u.sort(-1, descending=True).values
    count = torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    threshold = (running_sums(descending) - 1) / count
    support = (descending > threshold).sum(-1, keepdim=True)
    return (u - threshold.gather(-1, (support - 1).clamp(min=0))).clamp(min=0)


def _project_slope_portable(d: Tensor, p: Tensor, scale: float) -> Tensor:
    support = p > 0
    d = torch.where(support, d * scale, 0)
    return torch.where(support, d - d.sum(-1, keepdim=True) / support.sum(-1, keepdim=True), 0)


_project = _register("project", _project_on_device, _core.project)
_project_derivative = _register("project_derivative", _project_slope_portable, _core.project_derivative)


class _ProjectDerivative(torch.autograd.Function):
    """Linear in d. It depends on p only through the support, so that its derivative in p is 0."""

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, p: Tensor, scale: float) -> Tensor:
        return _project_derivative(d, p, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, p, ctx.scale = inputs
        ctx.save_for_backward(p)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _ProjectDerivative.apply(g, ctx.saved_tensors[0], ctx.scale), None, None


# --- softmax -----------------------------------------------------------------------------------


def _softmax_on_device(v: Tensor, scale: float) -> Tensor:
    if triton_engine.serves(v):
        from fwcrf.torch_ops import rows_triton

        if rows_triton.takes(v):
            return rows_triton.softmax(v, scale)
    return softmax_portable(v, scale)


def softmax_portable(v: Tensor, scale: float) -> Tensor:
    """``softmax`` in plain torch operations."""
    return torch.softmax(v * scale, -1)


def _softmax_slope_portable(d: Tensor, p: Tensor, scale: float) -> Tensor:
    d = d * scale
    return p * (d - (d * p).sum(-1, keepdim=True))


_softmax = _register("softmax", _softmax_on_device, _core.softmax)
_softmax_derivative = _register("softmax_derivative", _softmax_slope_portable, _core.softmax_derivative)


class _SoftmaxDerivative(torch.autograd.Function):
    """scale p (d - <d, p>): linear in d, quadratic in p."""

    generate_vmap_rule = True

    @staticmethod
    def forward(d: Tensor, p: Tensor, scale: float) -> Tensor:
        return _softmax_derivative(d, p, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *tensors, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        d, p = ctx.saved_tensors
        grad_d = grad_p = None
        if ctx.needs_input_grad[0]:
            grad_d = _SoftmaxDerivative.apply(g, p, ctx.scale)
        if ctx.needs_input_grad[1]:
            along_d, along_g = ((t * p).sum(-1, keepdim=True) for t in (d, g))
            grad_p = ctx.scale * (g * (d - along_d) - d * along_g)
        return grad_d, grad_p, None


# --- both --------------------------------------------------------------------------------------

_MAPS = {"project": (_project, _ProjectDerivative), "softmax": (_softmax, _SoftmaxDerivative)}


class _RowMap(torch.autograd.Function):
    """The map of a name, with its derivative: torch.compile traces no operator as an argument."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: Tensor, scale: float, name: str) -> Tensor:
        return _MAPS[name][0](v, scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.scale, ctx.name = inputs
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _MAPS[ctx.name][1].apply(g, ctx.saved_tensors[0], ctx.scale), None, None
