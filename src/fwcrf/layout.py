"""Between a network's layout, ``(*batch, channels, *grid)``, and the library's, ``(*batch, n, channels)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.kernels.ops import differentiated, transformed
from fwcrf.memory import empty
from fwcrf.threads import threads_for


def labels_last(scores: Tensor, num_labels: int, spatial_dims: int, name: str) -> Tensor:
    """``(*batch, L, *grid)`` as ``(*batch, n, L)``, contiguous, in float32 or float64.

    >>> labels_last(torch.zeros(2, 3, 4, 5), num_labels=3, spatial_dims=2, name="logits").shape
    torch.Size([2, 20, 3])
    """
    return transposed(labels_flat(scores, num_labels, spatial_dims, name))


def labels_flat(scores: Tensor, num_labels: int, spatial_dims: int, name: str) -> Tensor:
    """The same as ``(*batch, L, n)``."""
    if not scores.is_floating_point():
        raise TypeError(f"{name} has dtype {scores.dtype}; expected floating point: convert with .float().")
    shape = tuple(scores.shape)
    expected = f"({num_labels}, *grid) or (batch, {num_labels}, *grid) with {spatial_dims} grid axes"
    if len(shape) not in (spatial_dims + 1, spatial_dims + 2):
        raise ValueError(
            f"{name} has shape {shape}; expected {expected}: spatial_dims= sets the number of grid axes."
        )
    if shape[-spatial_dims - 1] != num_labels:
        raise ValueError(
            f"{name} has shape {shape}, {shape[-spatial_dims - 1]} labels; expected {expected}. "
            "Labels come before the grid, and num_labels= must be their number."
        )
    if math.prod(shape) == 0:
        raise ValueError(f"{name} has shape {shape}; expected at least one image and one pixel.")
    if scores.dtype != torch.float64:
        scores = scores.float()
    return scores.flatten(-spatial_dims)


def labels_first(x: Tensor, grid: Sequence[int]) -> Tensor:
    """``(*batch, n, L)`` as ``(*batch, L, *grid)``, contiguous."""
    return transposed(x).unflatten(-1, tuple(grid))


def transposed(x: Tensor, factor: float = 1.0) -> Tensor:
    """``factor * x.mT``, contiguous."""
    if transformed(x) or not _native(x):
        return (x.mT if factor == 1 else factor * x.mT).contiguous()
    return _Transpose.apply(x, factor) if differentiated(x) else _transpose(x, factor)  # type: ignore[return-value]


def put_transposed(x: Tensor, out: Tensor, factor: float = 1.0) -> None:
    """out = ``factor * x.mT``."""
    if _native(x) and out.is_cpu and out.dtype == x.dtype and out.is_contiguous() and x.numel():
        flat = x.detach().contiguous().view(-1, *x.shape[-2:])
        _core.transpose(flat, out.view(-1, *out.shape[-2:]), threads_for(x.numel()), factor)
    else:
        torch.mul(x.mT, factor, out=out)


def put_transposed_and_largest(x: Tensor, out: Tensor, largest: Tensor) -> bool:
    """out = ``x.mT`` and largest = ``x.argmax(-1)``, in one pass; False where that cannot be.

    >>> x, out, largest = torch.tensor([[0.2, 0.8]]), torch.empty(2, 1), torch.empty(1, dtype=torch.int64)
    >>> put_transposed_and_largest(x, out, largest), out.T, largest
    (True, tensor([[0.2000, 0.8000]]), tensor([1]))
    """
    made = (out, x.dtype), (largest, torch.int64)
    if not _native(x) or not all(t.is_cpu and t.dtype == d and t.is_contiguous() for t, d in made):
        return False
    if x.numel():
        n, length = x.shape[-2:]
        given = x.detach().contiguous().view(-1, n, length)
        _core.transpose_and_largest(
            given, out.view(-1, length, n), largest.view(-1, n), threads_for(4 * x.numel())
        )
    return True


def _native(x: Tensor) -> bool:
    return x.is_cpu and x.dtype in (torch.float32, torch.float64)


def _transpose(x: Tensor, factor: float) -> Tensor:
    out = empty((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype)
    put_transposed(x, out, factor)
    return out


class _Transpose(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return _transpose(x, factor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return transposed(g, ctx.factor), None


def full_precision(scores: Tensor) -> AbstractContextManager[object]:
    """Without autocast, on the device of the scores."""
    device = scores.device.type if isinstance(scores, Tensor) else "cpu"
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def as_precise(image: Tensor, x: Tensor) -> Tensor:
    """The image in the dtype of x, which is that of the computation."""
    # What is not a number is refused by those who read the image.
    return image if image.dtype == torch.bool or image.is_complex() else image.to(x.dtype)


def check_same_grid(image: Tensor, scores: Tensor, spatial_dims: int, name: str) -> None:
    """Refuse an image that does not belong to the scores."""
    for what, value in (("image", image), (name, scores)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{what} is a {type(value).__name__}; expected a torch tensor.")
    if image.dim() not in (spatial_dims + 1, spatial_dims + 2):
        raise ValueError(
            f"image has shape {tuple(image.shape)}; expected (channels, *grid) or (batch, channels, *grid) "
            f"with {spatial_dims} grid axes: spatial_dims= sets their number."
        )
    both = f"image has shape {tuple(image.shape)} and {name} has shape {tuple(scores.shape)}"
    if image.shape[-spatial_dims:] != scores.shape[-spatial_dims:]:
        raise ValueError(f"{both}; expected the same grid. Resize one of them, for example the {name}.")
    batch = image.shape[: -spatial_dims - 1]
    if batch and batch != scores.shape[: -spatial_dims - 1]:
        raise ValueError(f"{both}; expected the same batch, or one image without a batch axis for all.")
    if image.device != scores.device:
        raise ValueError(f"image is on {image.device} and {name} on {scores.device}; move one of them.")
