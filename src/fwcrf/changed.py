"""The changes that a refinement made: share of pixels, labels that disappeared, a label that took over."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fwcrf.inputs.arrays import as_array, kind
from fwcrf.torch_ops.native import LARGEST, as_int64, as_tensor, warn_caller

log: logging.Logger = logging.getLogger("fwcrf")

# A network is sure of a label with this mean probability over the label's pixels, if there are more than FEW.
SURE, FEW = 0.9, 8
# A label that takes over is worth a warning if it takes this share of the pixels from other labels.
_NOTABLE = 0.01

# Logits ``(images, n, L)`` of some images, part by part.
Parts = Callable[[], Iterator[tuple[slice, Tensor]]]


@dataclass(frozen=True)
class Changes:
    """Changes from one map of labels to another."""

    share: float  # of the pixels, from 0 to 1
    lost: tuple[int, ...]  # labels that have disappeared
    took_over: int | None  # the label of all pixels, if there were several labels before

    def __str__(self) -> str:
        text = f"{100 * self.share:.2g} % of the pixels changed"
        if self.lost:
            text += f"; {_named(self.lost)} disappeared"
        return text + (f"; label {self.took_over} took over" if self.took_over is not None else "")


def changes(before: Any, after: Any) -> Changes:
    """The changes from labels ``before`` to labels ``after``, arrays of whole numbers with the same shape.

    A negative number is no label.

    >>> print(changes(torch.tensor([0, 0, 2, 1]), torch.tensor([0, 0, 1, 1])))
    25 % of the pixels changed; label 2 disappeared
    """
    maps = []
    for name, value in (("before", before), ("after", after)):
        array = as_array(value, name)
        if kind(array) not in "bi":
            raise TypeError(
                f"{name} has dtype {array.dtype}; expected labels, whole numbers. Of scores, take the argmax "
                "over the labels."
            )
        maps.append(as_int64(as_tensor(array)).cpu())
    if maps[0].shape != maps[1].shape or maps[0].numel() == 0:
        shapes = " and ".join(str(tuple(one.shape)) for one in maps)
        raise ValueError(f"before and after have shapes {shapes}; expected the same, of one pixel or more.")
    labels, places = torch.stack(maps).unique(return_inverse=True)
    if int(labels[-1]) == LARGEST:
        raise ValueError("before or after has labels from 2^63 on; expected labels of int64, -1 for none.")
    counts = torch.stack([torch.bincount(one.flatten(), minlength=len(labels)) for one in places])
    changed = int((places[0] != places[1]).sum())
    return _of_counts(counts.masked_fill(labels < 0, 0), changed, maps[0].numel(), labels)


def report(
    counts: Tensor, certainty: Tensor, changed: float, pixels: int, labels: Callable[[], Iterable[Tensor]]
) -> None:
    """Log the changes; warn if labels of which the network is sure have disappeared.

    ``counts``, ``(2, images, L)``, are the pixels of each label before and after, estimated from some pixels,
    ``certainty``, ``(images, L)``, the sums of their probabilities before. ``labels`` returns all labels
    after, in equally many parts of each image, and is called if a label is not among the counted ones.
    """
    if bool(((counts[0] > 0) & (counts[1] == 0)).any()):
        counts = counts.clone()
        parts = [torch.bincount(one.flatten(), minlength=counts.shape[-1]).cpu() for one in labels()]
        counts[1] = torch.stack(parts).view(len(certainty), -1, counts.shape[-1]).sum(1)
    found = _of_counts(counts.sum(1), changed, pixels)
    taken = found.took_over is not None and found.share > _NOTABLE
    log.log(logging.WARNING if taken else logging.INFO, "%s", found)
    sure = (counts[0] > FEW) & (counts[1] == 0) & (certainty > SURE * counts[0])
    lost = [int(label) for label in sure.any(0).nonzero()]
    if lost:
        of = "" if len(sure) == 1 else f" of image {int(sure.any(1).nonzero()[0])}"
        most = round(float((sure * counts[0]).max()))
        warn_caller(
            f"{_named(lost)}{of} disappeared, of up to {most} pixels, although the scores are sure of it: "
            f"their mean probability is above {SURE}. Expected refined borders, not lost objects: lower the "
            "kernel weights or xy, or if the object is thin, see the page on troubleshooting. keep= takes a "
            "mask of pixels that keep their label."
        )


def check_reach(influence: float, confidence: float | None, logits: Parts) -> None:
    """Warn if no pixel can change, since no label comes within ``influence`` of the best one.

    For a label map, ``confidence`` is the confidence in it, and None for other scores.
    """
    gaps = []
    for _, part in logits():
        first, second = part.topk(2, -1).values.unbind(-1)
        gaps.append(float((first - second).nan_to_num(torch.inf, torch.inf).min()))
    least = min(gaps)
    if not influence <= least < torch.inf:
        return
    if confidence is not None:
        most = float(torch.sigmoid(torch.tensor(influence, dtype=torch.float64, device="cpu")))
        why = f"from_labels={confidence:g} puts the given label ahead by {least:.3g}"
        below = math.floor(1000 * most) / 1000
        such = 0.7 if below > 0.7 else (0.5 + below) / 2
        remedy = f"Pass a confidence below {below:g}, such as from_labels={such:.3g}"
    else:
        why = f"the best label of each pixel is ahead by at least {least:.3g} in its logits"
        remedy = "Divide logits by a temperature of 2 or more"
    warn_caller(
        f"no pixel changed, and none could: {why}, and the kernels weigh at most about {influence:.3g} "
        f"together. {remedy}, or raise the weights of the kernels."
    )


def _of_counts(counts: Tensor, changed: float, pixels: int, labels: Tensor | None = None) -> Changes:
    """The changes, from the number of pixels of each label before and after, ``(2, L)``."""
    if labels is None:
        labels = torch.arange(counts.shape[-1], device=counts.device)
    there = counts > 0
    lost = tuple(labels[there[0] & ~there[1]].tolist())
    alone = there[1].sum() == 1 and there[0].sum() > 1
    return Changes(changed / pixels, lost, int(labels[there[1]]) if alone else None)


def _named(labels: tuple[int, ...] | list[int]) -> str:
    *most, last = map(str, labels)
    return f"labels {', '.join(most)} and {last}" if most else f"label {last}"
