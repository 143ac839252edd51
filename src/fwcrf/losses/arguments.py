"""Arguments that several losses share: the reduction over images, and true labels."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from fwcrf.torch_ops.native import has_values

Reduction = Literal["mean", "sum", "none"]


def check_reduction(reduction: str) -> None:
    """Refuse a reduction that is not known."""
    if reduction not in get_args(Reduction):
        raise ValueError(f"reduction={reduction!r} is not known; expected 'mean', 'sum' or 'none'.")


def reduced(values: Tensor, reduction: Reduction) -> Tensor:
    """Mean or sum of the values, or the values themselves.

    >>> reduced(torch.tensor([1.0, 3.0]), "mean")
    tensor(2.)
    """
    return values if reduction == "none" else values.mean() if reduction == "mean" else values.sum()


def check_target(target: Tensor, scores: Tensor, spatial_dims: int, name: str, ignore_index: int) -> Tensor:
    """Mask of the labelled pixels of ``target``, which must hold labels of ``scores (*batch, L, *grid)``."""
    num_labels = scores.shape[-spatial_dims - 1]
    expected = (*scores.shape[: -spatial_dims - 1], *scores.shape[-spatial_dims:])
    if not isinstance(target, Tensor) or target.is_floating_point() or target.is_complex():
        kind = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise TypeError(f"target is of {kind}; expected a tensor of whole numbers: convert with .long().")
    if target.shape != expected:
        raise ValueError(
            f"target has shape {tuple(target.shape)} and {name} {tuple(scores.shape)}; expected a target of "
            f"{expected}, one label per pixel."
        )
    labelled = target != ignore_index
    if has_values(target) and target.numel():
        ends = torch.where(labelled, target, 0).aminmax()
        if ends.min < 0 or ends.max >= num_labels:
            wrong = int(ends.min if ends.min < 0 else ends.max)
            raise ValueError(
                f"target has {wrong}; expected labels from 0 to {num_labels - 1}, and {ignore_index} where "
                f"there is none. Another value for these pixels is ignore_index={wrong}."
            )
    return labelled
