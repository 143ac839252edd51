"""Lovasz-softmax, a convex extension of one minus the mean IoU (Berman, Triki and Blaschko, CVPR 2018).

For a class c, the error of a pixel is m_i = 1 - p_i(c) if c is its true label, and m_i = p_i(c) if it is not.
A set M of wrong pixels has the loss J(M) = |M| / |Y u M|, one minus the IoU of c, with Y the pixels of c. Its
Lovasz extension at the errors m is the integral over t from 0 to 1 of J({i: m_i > t}), which is the sum of
the errors in descending order times the growth of J with each further pixel.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fwcrf.inputs.arrays import scores_flat
from fwcrf.losses.arguments import check_target
from fwcrf.torch_ops.native import full_precision, has_values
from fwcrf.torch_ops.precision import widest


def lovasz_softmax(
    probabilities: Tensor,
    target: Tensor,
    *,
    classes: Literal["present", "all"] = "present",
    per_image: bool = False,
    ignore_index: int = -100,
    spatial_dims: int = 2,
) -> Tensor:
    """Mean over the classes of the Lovasz extension of one minus the IoU.

    ``probabilities`` are ``(batch, L, *grid)`` or ``(L, *grid)``, such as softmax(scores, 1) of a network;
    ``target`` has one label per pixel, and ``ignore_index`` where there is none. For probabilities of 0 and 1
    the value is exactly one minus the mean IoU.

    The mean is over the classes in the truth of the batch, with ``classes="all"`` over all classes. With
    ``per_image`` it is computed for each image, and averaged over the images with any label. Without a label,
    it is 0. Half precision is computed, and returned, in float32.

    >>> target = torch.tensor([[0, 0, 1, 1]])
    >>> sure = torch.nn.functional.one_hot(torch.tensor([[0, 1, 1, 1]])).movedim(-1, 0).float()
    >>> lovasz_softmax(sure, target)  # IoU 1/2 and 2/3
    tensor(0.4167)
    """
    if classes not in ("present", "all"):
        raise ValueError(f"classes={classes!r} is not known; expected 'present' or 'all'.")
    labelled = check_target(target, probabilities, spatial_dims, "probabilities", ignore_index)
    num_labels = probabilities.shape[-spatial_dims - 1]
    if num_labels < 2:
        raise ValueError(
            f"probabilities has shape {tuple(probabilities.shape)}, one label; expected two or more. Of one "
            "probability p per pixel, pass torch.cat([1 - p, p], dim)."
        )
    with full_precision(probabilities):
        p = scores_flat(probabilities, num_labels, spatial_dims, "probabilities")
        _check_probabilities(p)
        p, y, counted = (t.view(-1, *t.shape[len(t.shape) - keep :]) for t, keep in (
            (p, 2), (target.flatten(-spatial_dims), 1), (labelled.flatten(-spatial_dims), 1),
        ))  # fmt: skip
        if not per_image:
            p, y, counted = p.movedim(1, 0).flatten(1)[None], y.reshape(1, -1), counted.reshape(1, -1)
        each = [
            _of_pixels(one[:, kept], labels[kept].long(), classes == "all")
            for one, labels, kept in zip(p, y, counted, strict=True)
            if kept.any()
        ]
        # A value that depends on the probabilities, so that a backward pass finds zeros.
        return torch.stack(each).mean() if each else 0.0 * p.sum()


def _of_pixels(p: Tensor, y: Tensor, every: bool) -> Tensor:
    """The loss for probabilities ``(L, n)`` and labels ``(n,)``."""
    labels = torch.arange(len(p), device=p.device) if every else y.unique()
    true = y == labels[:, None]
    chosen = p[labels]
    errors, order = torch.where(true, 1 - chosen, chosen).sort(1, descending=True)
    true = true.gather(1, order)
    false = (~true).cumsum(1)
    # |M| / |Y u M| for the sets of the first 1, 2, ... pixels; counts are exact in float64.
    wrong = torch.arange(1, p.shape[1] + 1, device=p.device, dtype=widest(p.device))
    losses = wrong / (true.sum(1, keepdim=True) + false)
    growth = torch.diff(losses, dim=1, prepend=losses.new_zeros(len(labels), 1))
    return (errors * growth.to(errors)).sum(1).mean()


def _check_probabilities(p: Tensor) -> None:
    if has_values(p) and p.numel():
        least, most = (float(v) for v in p.detach().aminmax())
        if not (least >= -1e-4 and most <= 1 + 1e-4):
            raise ValueError(
                f"probabilities has values from {least:g} to {most:g}; expected 0 to 1. Of logits, pass "
                "logits.softmax(1)."
            )
