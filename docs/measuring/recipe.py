"""The recipe of most code for weak supervision, with pydensecrf or its drop-in: label maps from maps."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from fwcrf.kernels import Bilateral, Spatial

# Its settings, as arguments of ``fwcrf.pseudo_labels``.
SETTINGS: dict[str, Any] = {
    "solver": "mf", "num_steps": 10, "self_edges": True,
    "kernels": [Spatial(3.0, weight=3.0), Bilateral(50.0, 5.0, weight=10.0)],
}  # fmt: skip


def confidence(num_labels: int, gt_prob: float = 0.7) -> float:
    """The argument of ``fwcrf.pseudo_labels`` for ``gt_prob``, which is against all other labels together."""
    return gt_prob * (num_labels - 1) / (gt_prob * (num_labels - 1) + 1 - gt_prob)


def seeds(maps: np.ndarray, threshold: float) -> np.ndarray:
    """The number of the best map from 1 on, or 0 for background where no map exceeds the threshold."""
    maps = maps / maps.max((0, 1))
    return np.argmax(np.concatenate([np.full_like(maps[..., :1], threshold), maps], -1), -1)


def refined(package: str, image: np.ndarray, labels: np.ndarray, num_labels: int) -> np.ndarray:
    """Labels as by IRN: ``unary_from_labels``, two kernels, ten steps of mean field, argmax.

    ``package`` is "pydensecrf", or "fwcrf.pydensecrf" for the drop-in.
    """
    densecrf, utils = (import_module(f"{package}.{name}") for name in ("densecrf", "utils"))
    height, width = image.shape[:2]
    crf = densecrf.DenseCRF2D(width, height, num_labels)
    unary = utils.unary_from_labels(labels, num_labels, gt_prob=0.7, zero_unsure=False)
    crf.setUnaryEnergy(np.ascontiguousarray(unary))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(sxy=50, srgb=5, rgbim=np.ascontiguousarray(image), compat=10)
    return np.argmax(np.array(crf.inference(10)).reshape(num_labels, height, width), 0)


def pseudo_labels(
    package: str, image: np.ndarray, maps: np.ndarray, classes: Sequence[int], thresholds: Sequence[float]
) -> np.ndarray:
    """Labels as of ``fwcrf.pseudo_labels`` for maps ``(H, W, K)``, one or two thresholds."""
    names = np.array([0, *classes])
    first, *second = (names[refined(package, image, seeds(maps, t), len(names))] for t in thresholds)
    if not second:
        return first
    return np.where(second[0] > 0, second[0], np.where(first == 0, 0, 255))
