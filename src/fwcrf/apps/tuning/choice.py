"""The choice among candidates, by cross-validation over images.

The score of an image is minus the logarithm of its error, one minus the mean IoU of the image alone: a gain
of 0.1 is ten percent less error. In the mean over images each image counts the same, so that two or three
difficult images do not decide, as they do for the mean IoU of all images together.

The first candidate is the start. A candidate that lowers the mean IoU, per image or of all images together,
is left out. Among the remaining candidates whose mean score is at most one standard error below the best, the
choice is the nearest to the start. Cross-validation repeats this choice without a fifth of the images and
scores this fifth with it. The choice is the start unless the mean gain over the start is then ``NEEDED``
times its standard error, and half of the repetitions choose the same candidate: else the gain is of other
candidates.

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
# Standard errors by which the cross-validated gain must exceed 0. With 1, a fifth of the searches among 60
# candidates as good as the start change it; with 1.5, a tenth.
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
        reason = "no candidate is better by more than a standard error"
    elif not unseen.mean() > NEEDED * standard_error(unseen):
        reason = f"on images without part in the choice the gain is below {NEEDED:g} standard errors"
    elif (picks == index).mean() < 0.5:
        reason = "without a fifth of the images, the choice is another one"
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
    """The candidate nearest to the start, of all within one standard error of the best."""
    each, joint, gains = mean_iou(areas).mean(1), mean_iou(areas.sum(1)), scores(areas)
    means = np.where((each >= each[0]) & (joint >= joint[0]), gains.mean(1), -math.inf)
    best = means.argmax()
    near = means[best] - means <= standard_error(gains[best] - gains)
    near[best] = True
    return int(np.where(near, distances, math.inf).argmin())


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
