"""Counts of right and wrong pixels of refined labels, and the measures that follow from them.

mIoU and pixel accuracy; ``borders``, the mIoU within five pixels of a change in the truth; ``boundary F``, of
``fwcrf.apps.evaluation``; and the recall of small components (under 1 % of the image) and of thin parts
(which an opening by a disc of radius 4 removes).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from scipy.spatial import cKDTree

import fwcrf
from fwcrf.apps.evaluation.boundary import borders, completed
from fwcrf.apps.tuning.shared import Shared
from fwcrf.kernels.operator import Operator
from measuring.scenes import VOID, Scene, Task, disc

MEASURES = ("mIoU", "borders", "boundary F", "accuracy", "small", "thin")
SCORES_ALONE = "scores alone"


@dataclass(frozen=True)
class Counts:
    """Counts of images: confusion matrices of four masks, and per class the boundary F and its number."""

    matrices: np.ndarray  # (images, 4, L, L), rows are true labels
    boundary: np.ndarray  # (images, 2, L)

    def __len__(self) -> int:
        return len(self.matrices)

    def of(self, images: Any) -> Counts:
        """The counts of some images."""
        return Counts(self.matrices[images], self.boundary[images])

    def measures(self, task: Task) -> np.ndarray:
        """The measures in percent, in the order of ``MEASURES``, of all images together."""
        total, (score, number) = self.matrices.sum(0), self.boundary.sum(0)
        right = np.diagonal(total, axis1=-2, axis2=-1).astype(float)
        union = total.sum(-1) + total.sum(-2) - right
        classes = list(task.classes)
        iou = (right / np.maximum(union, 1))[:, classes]
        seen = total.sum(-1)[:, classes] > 0  # a class that no truth has would count as 0, or not at all
        means = [iou[k][seen[k]].mean() for k in (0, 1)]
        known = [c for c in classes if number[c]]
        edges = (score[known] / number[known]).mean()
        things = [label for label in range(task.num_labels) if label != task.background]
        recalls = [right[k][things].sum() / max(total[k][things].sum(), 1) for k in (2, 3)]
        return 100 * np.array([*means, edges, right[0].sum() / total[0].sum(), *recalls])


class Judge:
    """Counts of labels for one scene; all of the truth is prepared once."""

    def __init__(self, scene: Scene, task: Task) -> None:
        self.truth = scene.truth.astype(int)
        self.count = task.num_labels
        self.valid = self.truth != VOID
        masks = [mask & self.valid for mask in parts(self.truth, task.background)]
        self.masks = [(mask, self.count * self.truth[mask]) for mask in masks]
        whole = completed(torch.from_numpy(self.truth))
        border = borders(whole).numpy()
        self.radius = 0.0075 * math.hypot(*self.truth.shape)
        self.edges = {
            int(label): points
            for label in np.unique(self.truth[self.valid])
            if len(points := np.argwhere(border & (whole.numpy() == label)))
        }
        self.trees = {label: cKDTree(points) for label, points in self.edges.items()}

    def matrices(self, labels: np.ndarray) -> np.ndarray:
        """Confusion matrices ``(4, L, L)``."""
        each = [np.bincount(first + labels[mask], minlength=self.count**2) for mask, first in self.masks]
        return np.stack(each).reshape(-1, self.count, self.count)

    def boundary(self, labels: np.ndarray) -> np.ndarray:
        """Boundary F per class, and 1 for each class with a true border: ``(2, L)``, as of ``BoundaryF``."""
        found = np.zeros((2, self.count))
        border = borders(torch.from_numpy(np.ascontiguousarray(labels))).numpy()
        for label, points in self.edges.items():
            found[1, label] = 1
            own = np.argwhere(border & (labels == label))
            if not len(own):
                continue
            counted = own[self.valid[tuple(own.T)]]
            precision = self._share(counted, self.trees[label]) if len(counted) else 1.0
            recall = self._share(points, cKDTree(own))
            found[0, label] = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return found

    def _share(self, points: np.ndarray, others: cKDTree) -> float:
        """Share of the points that have another point within the radius."""
        reach = self.radius * (1 + 1e-9)
        return float(np.isfinite(others.query(points, distance_upper_bound=reach)[0]).mean())


def parts(truth: np.ndarray, background: int | None) -> list[np.ndarray]:
    """Masks: all pixels, pixels near a change in the truth, small components, thin parts."""
    change = np.zeros(truth.shape, bool)
    for axis in (0, 1):
        differ = np.diff(truth.astype(int), axis=axis) != 0
        before, after = [slice(None)] * 2, [slice(None)] * 2
        before[axis], after[axis] = slice(0, -1), slice(1, None)
        change[tuple(before)] |= differ
        change[tuple(after)] |= differ
    near = ndimage.distance_transform_edt(~change) <= 5 if change.any() else change
    small, thin = np.zeros(truth.shape, bool), np.zeros(truth.shape, bool)
    for label in np.unique(truth):
        if label in (VOID, background):
            continue
        mask = np.pad(truth == label, 6, mode="edge")
        thin |= (mask & ~ndimage.binary_opening(mask, disc(4)))[6:-6, 6:-6]
        components, _ = ndimage.label(truth == label, np.ones((3, 3)))
        sizes = np.bincount(components.ravel())
        sizes[0] = 0
        small |= ((sizes >= 20) & (sizes < 0.01 * truth.size))[components]
    return [np.ones(truth.shape, bool), near, small, thin]


def run(task: Task, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Counts]:
    """Counts of the scores alone and of each setting: arguments of ``refine``.

    A setting's ``"temperature"`` divides logits. Settings with the same bandwidths share their lattices.
    """
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {
        SCORES_ALONE: [],
        **{name: [] for name in settings},
    }
    for number, scene in enumerate(task.scenes()):
        judge, operators = Judge(scene, task), dict[str, Operator]()
        maps = {SCORES_ALONE: scene.alone}
        for name, arguments in settings.items():
            labels = refined(scene, arguments, operators)
            maps[name] = labels if scene.keys is None else scene.keys[labels]
        for name, labels in maps.items():
            found[name].append((judge.matrices(labels), judge.boundary(labels)))
        print(f"\r{number + 1} images", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {name: Counts(*(np.stack(one) for one in zip(*each, strict=True))) for name, each in found.items()}


def refined(scene: Scene, arguments: Mapping[str, Any], operators: dict[str, Operator]) -> np.ndarray:
    """Labels of a setting, with operators that several settings share."""
    given = {**arguments, **scene.options}
    temperature = given.pop("temperature", 1.0)
    scores = scene.scores
    if temperature != 1 and given.get("from_logits"):
        scores = scores / np.float32(temperature)
    elif temperature != 1:
        scores = scores ** np.float32(1 / temperature)
        scores /= scores.sum(-1, keepdims=True)
    if "kernels" in given:
        given["kernels"] = [Shared(kernel, operators) for kernel in given["kernels"]]
    return fwcrf.refine(scene.image, scores, **given)


def kept(path: Path | None, task: Task, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Counts]:
    """Counts as of ``run``; settings that a file has under their names are not measured again."""
    known: dict[str, Counts] = {}
    if path is not None and path.exists():
        with np.load(path) as stored:
            names = [str(name) for name in stored["names"]]
            known = {
                n: Counts(m, b) for n, m, b in zip(names, stored["matrices"], stored["boundary"], strict=True)
            }
    missing = {name: given for name, given in settings.items() if name not in known}
    if missing or SCORES_ALONE not in known:
        known |= run(task, missing)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            each = [*known.values()]
            np.savez_compressed(
                path,
                names=np.array([*known]),
                matrices=np.stack([one.matrices for one in each]),
                boundary=np.stack([one.boundary for one in each]),
            )
    return {name: known[name] for name in (SCORES_ALONE, *settings)}


def resampled(counts: Counts, task: Task, draws: Sequence[np.ndarray]) -> np.ndarray:
    """Measures ``(draws, measures)`` of drawn images."""
    return np.stack([counts.of(draw).measures(task) for draw in draws])
