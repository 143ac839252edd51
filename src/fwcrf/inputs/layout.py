"""Between a network's layout, ``(*batch, channels, *grid)``, and the library's, ``(*batch, n, channels)``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from fwcrf.torch_ops.layout import transposed


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
