"""Pseudo labels for training: class activation maps and image-level labels, refined.

The background has no map of its own. It gets one from the maps, in one of the two usual ways:

- ``threshold=t``: a pixel is background if no map exceeds t, and the best map's label otherwise; these labels
  are refined with a confidence (IRN).
- ``power=a``: the background's score is ``(1 - m)^a`` with m the largest of the maps; the scores of
  background and maps are refined as probabilities (AffinityNet). The smaller a, the more background.

Two numbers make a band of unsure pixels: the first for sure background, the second for sure objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fwcrf.inputs.arrays import Located, kind, locate, stretch
from fwcrf.inputs.numbers import real, whole
from fwcrf.inputs.resample import Align, aligned, needed, resample
from fwcrf.refinement import check_names, refine
from fwcrf.torch_ops.native import check_finite

# The thresholds of IRN.
THRESHOLD = (0.05, 0.3)
# The least score of a label, as pydensecrf's unary_from_softmax has it.
_LEAST = 1e-5
# The axis of maps is where it makes their grid better than elsewhere by this factor.
_CLEARLY = 1.2
# Arguments of ``refine`` that follow from the maps.
_OWN = (
    "from_logits", "from_labels", "num_labels", "spatial_dims", "resize", "return_probabilities", "out",
)  # fmt: skip


def pseudo_labels(
    image: Any,
    maps: Any,
    classes: Sequence[int] | None = None,
    *,
    threshold: float | Sequence[float] | None = None,
    power: float | Sequence[float] | None = None,
    confidence: float = 0.7,
    normalize: bool = True,
    ignore: int = 255,
    align: Align = "centers",
    channel_axis: int = -1,
    **options: Any,
) -> Any:
    """Labels ``(H, W)`` of pixels: 0 for background, labels of ``classes``, and ``ignore`` where unsure.

    Args:
        image: ``(H, W, 3)``, as of ``refine``; a tensor is ``(3, H, W)``.
        maps: activation maps, ``(h, w, K)`` with maps at ``channel_axis``, or a tensor ``(K, h, w)``; of the
            image's size, or smaller. Negative values count as 0.
        classes: the labels that the image has, from 1 on; no map of another class is used. There is a map for
            each of them, in their order, or one for each label from 1 on. By default all maps, with labels
            from 1 on.
        threshold: a number from 0 to 1, or two: sure background, sure object. By default 0.05 and 0.3.
        power: in place of a threshold, a power of the background's score, or two: sure background, sure
            object, such as 32 and 4.
        confidence: with a threshold, the confidence in the labels before they are refined.
        normalize: divide each map by its largest value.
        ignore: the label of pixels that are neither sure background nor sure object.
        align: how smaller maps lie on the image, as ``align`` of ``refine``.
        options: further arguments of ``refine``, by default ``preset="pseudo-labels"``.

    >>> image = np.full((8, 12, 3), 200, np.uint8)
    >>> image[:, :6] = 50
    >>> maps = np.zeros((8, 12, 1))
    >>> maps[:, :6], maps[1:7, 1:5] = 0.04, 1.0
    >>> pseudo_labels(image, maps, [7])[0, [0, 11]]
    array([7, 0])
    """
    if threshold is not None and power is not None:
        raise ValueError(f"threshold={threshold} and power={power} are both given; expected one of them.")
    check_names(options, "fwcrf.pseudo_labels", without=_OWN)
    levels = _levels(THRESHOLD if threshold is None else threshold, power)
    picture = locate(image, "image", 2)
    stored = locate(maps, "maps", 2, channel_axis)
    if kind(stored.array) != "f":
        raise TypeError(f"maps has dtype {stored.array.dtype}; expected floating point, activations.")
    if picture.batch is not None or stored.batch is not None:
        raise ValueError(
            f"image has shape {tuple(picture.array.shape)} and maps {tuple(stored.array.shape)}; expected "
            "one image, whose classes are its own."
        )
    if classes is None or len(classes) != stored.channels:
        _check_axis(picture.grid, stored)
    values = stored.read(torch.float32, slice(None), stored.whole)
    values = values if stored.channels is not None else values.unsqueeze(-1)
    check_finite(values, "maps")
    labels, chosen = _chosen(classes, values.shape[-1], ignore)
    values = values[..., chosen].clamp(min=0)
    if normalize:
        values = values / values.amax((0, 1)).clamp(min=torch.finfo(values.dtype).tiny)
    elif values.numel() and float(values.max()) > 1:
        raise ValueError(
            f"maps has values up to {float(values.max()):.3g}; expected 0 to 1, or normalize=True."
        )
    if stored.grid != picture.grid or not isinstance(align, str):
        alignment = aligned(picture.grid, stored.grid, align, "maps")
        window = picture.whole
        values = resample(values[needed(window, alignment)], window, alignment)
    if not len(chosen):
        found = torch.zeros(len(levels), *picture.grid, dtype=torch.int64, device="cpu")
    else:
        if "kernels" not in options:
            options = {"preset": "pseudo-labels", **options}
        if power is None:
            seeds = torch.stack([_above(values, level) for level in levels])
            options |= {"from_labels": confidence, "num_labels": len(chosen) + 1}
        else:
            seeds = torch.stack([_with_background(values, level) for level in levels]).movedim(-1, 1)
        found = refine(image, seeds, spatial_dims=2, **options)
    names = torch.tensor([0, *labels], dtype=torch.int64, device=found.device)[found]
    sure = names[0]
    if len(levels) == 2:
        background, objects = names
        sure = torch.where(objects > 0, objects, torch.where(background == 0, 0, ignore))
    return sure if stored.is_torch else sure.numpy()


def _check_axis(image: Sequence[int], stored: Located) -> None:
    """Refuse maps with the proportions of the image, or square ones, if their axis is at the other end."""
    if stored.channel_axis is None:
        return
    shape = tuple(stored.array.shape)
    first, last = shape[1:], shape[:-1]  # the grid, if the axis of the maps is the first, or the last one
    here, there = (last, first) if stored.channel_axis else (first, last)
    if _stretched(image, there) * _CLEARLY >= _stretched(image, here):
        return
    how = "maps.movedim(-1, 0)" if stored.is_torch else "np.moveaxis(maps, 0, 2)"
    raise ValueError(
        f"maps has shape {shape}, which is {stored.channels} maps of {here[0]} x {here[1]} for an image of "
        f"{image[0]} x {image[1]} pixels; expected its proportions, or square maps. The axis of the maps "
        f"seems to be at the other end: pass {how}. If it is not, pass classes= with a label for each map."
    )


def _stretched(image: Sequence[int], grid: Sequence[int]) -> float:
    """1 for a grid with the proportions of the image, or a square one, as of images that were made square."""
    return 1.0 if grid[0] == grid[1] else stretch(image, grid)


def _levels(threshold: float | Sequence[float], power: float | Sequence[float] | None) -> list[float]:
    name, value = ("threshold", threshold) if power is None else ("power", power)
    each = list(value) if np.ndim(value) == 1 else [value]  # type: ignore[arg-type]
    expected = "a number from 0 to 1" if power is None else "a positive number"
    if len(each) not in (1, 2):
        raise ValueError(f"{name}={value} has {len(each)} numbers; expected one, or two.")
    most = 1.0 if power is None else float("inf")
    levels = [
        real(one, name, f"{expected}, or two: sure background, sure object", lambda v: 0 < v < most)
        for one in each
    ]
    if len(levels) == 2 and (levels[0] > levels[1]) == (power is None):
        order = "the smaller threshold" if power is None else "the larger power"
        raise ValueError(f"{name}={value}; expected {order} first, that of sure background.")
    return levels


def _chosen(classes: Sequence[int] | None, count: int, ignore: int) -> tuple[list[int], list[int]]:
    """The labels of an image, and the numbers of their maps."""
    if classes is None:
        return list(range(1, count + 1)), list(range(count))
    labels = [whole(one, "classes", 1, "labels from 1 on, the background is 0") for one in classes]
    if len({*labels}) < len(labels) or ignore in labels:
        raise ValueError(f"classes={labels}; expected different labels, none of them ignore={ignore}.")
    if len(labels) == count:
        return labels, list(range(count))
    if max(labels, default=0) > count:
        raise ValueError(
            f"classes={labels}, and there are {count} maps; expected a map for each of these classes, or one "
            f"for each label from 1 to {max(labels)}."
        )
    return labels, [one - 1 for one in labels]


def _above(maps: Tensor, threshold: float) -> Tensor:
    """The number of the largest map, from 1 on, where it exceeds the threshold; else 0."""
    most, best = maps.max(-1)
    return torch.where(most > threshold, best + 1, 0)


def _with_background(maps: Tensor, power: float) -> Tensor:
    """Probabilities of background and maps."""
    rest = (1 - maps.amax(-1, keepdim=True)).clamp(0, 1)
    scores = torch.cat([rest**power, maps], -1).clamp(min=_LEAST)
    return scores / scores.sum(-1, keepdim=True)
