"""The choice among candidates, by cross-validation over images.

The score of an image is minus the logarithm of its error, one minus the mean IoU of the image alone: a gain
of 0.1 is ten percent less error. In the mean over images each image counts the same, so that two or three
difficult images do not decide, as they do for the mean IoU of all images together.

The first candidate is the start. A candidate that lowers the mean IoU, per image or of all images together,
is left out. The evidence for another one is its mean gain over the start in standard errors, of the score or
of the mean IoU per image, whichever has less. ``PENALTY`` times its distance from the start is taken off, up
to ``_MOST``: a candidate nearby can lose little, and needs little evidence; a distant one needs much. The
choice is the candidate with most evidence left, the start if none has any.

Cross-validation repeats this choice without a fifth of the images and scores this fifth with it. The choice
is the start unless the mean gain over the start is then ``NEEDED`` times its standard error.

The reported mean IoU is cross-validated once more: without a fifth of the images, all of this is repeated,
the preference for the start included, and the fifth is labelled with the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Fewer images than this never change the start: their standard error is too uncertain itself.
FEWEST = 10
# Added to the error of an image: below it, differences do not count.
_LEAST_ERROR = 0.01
# Standard errors of evidence that a candidate needs, per unit of distance from the start, and at most: a
# neighbour of the start (design.py) needs about 0.7, the best of 60 distant candidates without any gain
# seldom has more than 2.5.
PENALTY, _MOST = 8.0, 2.5
# Standard errors by which the cross-validated gain must exceed 0.
NEEDED = 1.5
# Several partitions into folds, so that the result hardly depends on them.
_FOLDS, _PARTITIONS = 5, 4
_RESAMPLES = 1000


@dataclass(frozen=True)
class Choice:
    """The chosen candidate. Cross-validated figures are of images that had no part in the choice."""

    index: int  # 0 is the start
    reason: str  # why the start was kept, else empty
    unseen: tuple[float, ...]  # cross-validated gain in score of each image, before the start is preferred
    gain: float  # mean of ``unseen``
    error: float  # its standard error; nan for one image
    miou_start: float  # mean IoU of all images together with the start
    miou: float  # the same, cross-validated
    miou_error: float  # standard error of ``miou - miou_start``, by paired bootstrap; nan for one image


def mean_iou(areas: np.ndarray) -> np.ndarray:
    """Mean IoU over the classes of the truth: areas ``(..., 3, labels)`` to ``(...)``.

    >>> mean_iou(np.array([[1, 1, 0], [2, 1, 0], [1, 2, 1]])).item()
    0.5
    """
    both, true, found = np.moveaxis(areas, -2, 0)
    iou = np.where(true > 0, both / np.maximum(true + found - both, 1), 0.0)
    return iou.sum(-1) / (true > 0).sum(-1)


def scores(areas: np.ndarray) -> np.ndarray:
    """Score of each image: areas ``(..., 3, labels)`` to ``(...)``."""
    return -np.log(1 - mean_iou(areas) + _LEAST_ERROR)


def choose(areas: np.ndarray, distances: np.ndarray) -> Choice:
    """The choice among candidates with areas ``(candidates, images, 3, labels)``, the start first.

    ``distances`` are of the candidates from the start.
    """
    areas = areas[..., areas[0, :, 1].any(0)]  # labels that no truth has do not count
    count = areas.shape[1]
    index, unseen, reason = _judged(areas, distances)
    if count < FEWEST:
        reason = f"{count} images are too few to choose by; {FEWEST} are the least, 20 or more are better"
    picks = _cross_validated(areas, distances, lambda *rest: 0 if (found := _judged(*rest))[2] else found[0])
    before, after = areas[0], areas[picks, np.arange(count)].mean(0)
    return Choice(
        0 if reason else index,
        reason,
        tuple(unseen.tolist()),
        float(unseen.mean()),
        float(standard_error(unseen)),
        float(mean_iou(before.sum(0))),
        float(mean_iou(after.sum(0))),
        _bootstrap(before, after) if count > 1 else math.nan,
    )


def _judged(areas: np.ndarray, distances: np.ndarray) -> tuple[int, np.ndarray, str]:
    """The best candidate, cross-validated gains ``(images,)``, and a reason against the choice, or ""."""
    index, gains = _pick(areas, distances), scores(areas)
    picks = _cross_validated(areas, distances, _pick)
    unseen = (gains[picks, np.arange(areas.shape[1])] - gains[0]).mean(0)
    reason = ""
    if index == 0:
        reason = "no candidate is better by enough standard errors for its distance from the start"
    elif not unseen.mean() > NEEDED * standard_error(unseen):
        reason = f"on images without part in the choice the gain is below {NEEDED:g} standard errors"
    return index, unseen, reason


def _cross_validated(
    areas: np.ndarray, distances: np.ndarray, rule: Callable[[np.ndarray, np.ndarray], int]
) -> np.ndarray:
    """Candidates ``(partitions, images)``, each chosen by ``rule`` without the image and its whole fold."""
    count = areas.shape[1]
    rng = np.random.default_rng(0)
    picks = np.zeros((_PARTITIONS, count), int)
    for row in picks:
        for fold in np.array_split(rng.permutation(count), min(_FOLDS, count)):
            if len(fold) < count:
                row[fold] = rule(np.delete(areas, fold, 1), distances)
    return picks


def _pick(areas: np.ndarray, distances: np.ndarray) -> int:
    """The candidate with most evidence against the start, less a penalty for its distance."""
    each, gains = mean_iou(areas), scores(areas)
    joint = mean_iou(areas.sum(1))
    evidence = np.minimum(_evidence(gains - gains[0]), _evidence(each - each[0]))
    admitted = (each.mean(1) >= each[0].mean()) & (joint >= joint[0])
    return int(np.where(admitted, evidence - np.minimum(PENALTY * distances, _MOST), -math.inf).argmax())


def _evidence(gains: np.ndarray) -> np.ndarray:
    """Mean gains ``(candidates, images)`` in standard errors; 0 for no gain on any image."""
    error = standard_error(gains) if gains.shape[1] > 1 else np.zeros(len(gains))
    return gains.mean(1) / np.maximum(error, 1e-9)


def standard_error(values: np.ndarray) -> np.ndarray:
    """Standard error of the mean over the last axis; nan for one value."""
    count = values.shape[-1]
    if count == 1:
        return np.full(values.shape[:-1], math.nan)
    return values.std(-1, ddof=1) / math.sqrt(count)


def _bootstrap(before: np.ndarray, after: np.ndarray) -> float:
    """Standard error of the difference in joint mean IoU, from areas ``(images, 3, labels)`` of both."""
    count = len(before)
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    joint = [mean_iou(np.tensordot(drawn, one, 1)) for one in (before, after)]
    return float((joint[1] - joint[0]).std(ddof=1))
