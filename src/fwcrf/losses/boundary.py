"""Cross-entropy with larger weights near the borders of the truth, as in U-Net (Ronneberger et al. 2015)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fwcrf.inputs.arrays import scores_flat
from fwcrf.inputs.numbers import real
from fwcrf.losses.arguments import Reduction, check_reduction, check_target, reduced
from fwcrf.torch_ops.native import full_precision

# Beyond so many widths, exp(-d^2 / 2 width^2) < 2e-8 is lost beside 1 in float32.
_REACH = 6.0


def boundary_cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    strength: float = 4.0,
    width: float = 3.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    spatial_dims: int = 2,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of the labelled pixels, weighted by ``boundary_weights``.

    ``logits`` are ``(batch, L, *grid)`` or ``(L, *grid)``, ``target`` has one label per pixel. ``weight`` is
    a further factor per label, as in ``torch.nn.functional.cross_entropy``. The mean is weighted: the sum
    over all pixels, divided by the sum of their weights, and 0 without a labelled pixel. ``reduction="none"``
    returns the weighted values, in the shape of the target. Half precision is computed, and returned, in
    float32.

    >>> target = torch.tensor([[0, 0, 0, 1, 1, 1]])
    >>> even = torch.zeros(2, 1, 6)
    >>> boundary_cross_entropy(even, target)  # log 2, for any weights
    tensor(0.6931)
    """
    check_reduction(reduction)
    labelled = check_target(target, logits, spatial_dims, "logits", ignore_index)
    num_labels = logits.shape[-spatial_dims - 1]
    with full_precision(logits):
        flat = scores_flat(logits, num_labels, spatial_dims, "logits").log_softmax(-2)
        weights = boundary_weights(
            target, strength=strength, width=width, ignore_index=ignore_index, spatial_dims=spatial_dims,
            dtype=flat.dtype,
        )  # fmt: skip
        labels = torch.where(labelled, target, 0).long()
        if weight is not None:
            if weight.shape != (num_labels,):
                raise ValueError(
                    f"weight has shape {tuple(weight.shape)}; expected {num_labels} numbers, one per label."
                )
            weights = weights * weight.to(weights)[labels]
        entropy = -flat.gather(-2, labels.flatten(-spatial_dims).unsqueeze(-2)).squeeze(-2).view(target.shape)
        # A pixel without a label counts nothing, even if its logits are infinite.
        values = torch.where(labelled, weights * entropy, 0.0)
        if reduction == "mean":
            return values.sum() / weights.sum().clamp(min=torch.finfo(values.dtype).tiny)
        return reduced(values, reduction)


def boundary_weights(
    target: Tensor,
    *,
    strength: float = 4.0,
    width: float = 3.0,
    ignore_index: int = -100,
    spatial_dims: int = 2,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """1 + strength exp(-d^2 / 2 width^2) of each pixel, 0 of pixels without a label.

    d is the distance, in pixels, to the nearest pixel with another label. Pixels without a label are no other
    label: a band of them around an object separates its pixels from the nearest other label by its width.

    >>> boundary_weights(torch.tensor([[0, 0, 0, 1, 1, -100]]), strength=1.0, width=1.0)
    tensor([[1.0111, 1.1353, 1.6065, 1.6065, 1.1353, 0.0000]])
    """
    real(strength, "strength", "a number of 0 or more", lambda s: 0 <= s < math.inf)
    real(width, "width", "a positive number of pixels", lambda w: 0 < w < math.inf)
    if target.dim() not in (spatial_dims, spatial_dims + 1):
        raise ValueError(
            f"target has shape {tuple(target.shape)}; expected {spatial_dims} grid axes, or a batch of them. "
            "For volumes, pass spatial_dims=3."
        )
    labelled = target != ignore_index
    squared = torch.full(target.shape, math.inf, dtype=dtype, device=target.device)
    for label in target[labelled].unique():
        inside = target == label
        far = _squared_distance(labelled & ~inside, math.ceil(_REACH * width), spatial_dims, dtype)
        squared = torch.where(inside, far, squared)
    return labelled.to(dtype) * (1 + strength * torch.exp(-squared / (2 * width**2)))


def _squared_distance(mask: Tensor, reach: int, spatial_dims: int, dtype: torch.dtype) -> Tensor:
    """Squared distance to the nearest pixel of the mask; infinite if it is above ``reach`` along an axis."""
    squared = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, math.inf)
    for axis in range(-spatial_dims, 0):
        size = squared.shape[axis]
        nearest = squared.clone()
        for shift in range(1, min(reach, size - 1) + 1):
            for to, of in ((shift, 0), (0, shift)):
                moved = squared.narrow(axis, of, size - shift) + shift**2
                place = nearest.narrow(axis, to, size - shift)
                torch.minimum(place, moved, out=place)
        squared = nearest
    return squared
