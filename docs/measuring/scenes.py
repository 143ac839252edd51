"""Scenes: images of data sets with a network's scores and the true labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy import ndimage

from fwcrf.apps.data.folder import Splits
from fwcrf.apps.data.scores import deeplab
from fwcrf.apps.experiments.images import spread
from fwcrf.apps.models import ESPNet

DATA = Path(os.environ.get("FWCRF_DATA", "data"))
VOID = 255
WELL_REPRESENTED = (0, 8, 9, 10, 12, 13, 15, 17, 18)  # the classes of the VOC images at hand


@dataclass(frozen=True)
class Scene:
    """An image, its scores as arguments of ``refine``, its true labels, and the labels of the scores."""

    image: np.ndarray
    scores: np.ndarray
    truth: np.ndarray
    alone: np.ndarray
    options: Mapping[str, Any]
    keys: np.ndarray | None = None  # the class of each label, if labels are numbered otherwise


@dataclass(frozen=True)
class Task:
    """Scenes and the classes that count; ``background`` is not a thing that can be small or thin."""

    scenes: Callable[[], Iterator[Scene]]
    classes: Sequence[int]
    num_labels: int
    background: int | None = None


def disc(radius: int) -> np.ndarray:
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return x * x + y * y <= radius * radius


def channels_last(tensor: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.movedim(0, -1).numpy())


def voc(every: int = 1) -> Iterator[Scene]:
    """Every so many images."""
    data = deeplab(DATA / "voc2012")
    for image, truth, logits in (data[k] for k in range(0, len(data), every)):
        scores = channels_last(logits)
        yield Scene(channels_last(image), scores, truth.numpy(), scores.argmax(-1), {"from_logits": True})


def camvid(split: str = "test", count: int | None = None) -> Iterator[Scene]:
    """All images of a split, or ``count`` of them, evenly spaced."""
    net = ESPNet.from_file(DATA / "weights" / "espnet_p2q8_camvid.safetensors")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in net.normalization)
    data = Splits(DATA / "camvid", split)
    for image, truth in (data[k] for k in spread(range(len(data)), count or len(data))):
        with torch.no_grad():
            scores = channels_last(net(((image - mean) / std)[None])[0, : len(data.classes)])
        known = np.where(truth == data.classes.ignore_index, VOID, truth)
        yield Scene(channels_last(image), scores, known, scores.argmax(-1), {"from_logits": True})


def msrc() -> Iterator[Scene]:
    for path in sorted((DATA / "examples" / "msrc_textonboost").glob("*_prob.npz")):
        stem = path.name.removesuffix("_prob.npz")
        image = np.asarray(Image.open(path.with_name(f"{stem}.png")).convert("RGB"))
        p = np.clip(np.load(path)["prob"].astype(np.float32), 5e-4, 1).transpose(1, 2, 0)
        p /= p.sum(-1, keepdims=True)
        truth = np.asarray(Image.open(path.with_name(f"{stem}_label.png")))
        yield Scene(image, p, truth, p.argmax(-1), {})


def binary() -> Iterator[Scene]:
    for scene in voc():
        background, things = scene.scores[..., 0], np.logaddexp.reduce(scene.scores[..., 1:], -1)
        scores = np.stack([background, things], -1)
        truth = np.where(scene.truth == VOID, VOID, scene.truth > 0)
        yield replace(scene, scores=scores, truth=truth, alone=scores.argmax(-1))


def pseudo() -> Iterator[Scene]:
    """Activation maps: the network's probabilities of the classes in the image, blurred, against 0.4."""
    for scene in voc():
        have = [label for label in np.unique(scene.truth) if label not in (0, VOID)]
        if not have:
            continue
        p = torch.from_numpy(scene.scores).softmax(-1)[..., have].movedim(-1, 0)[None]
        p = F.interpolate(F.avg_pool2d(p, 33, 16, 16), scene.truth.shape, mode="bilinear", align_corners=True)
        p = p[0] / p[0].amax((1, 2), keepdim=True).clamp(min=1e-5)
        labels = torch.cat([torch.full_like(p[:1], 0.4), p]).argmax(0).numpy()
        keys = np.array([0, *have])
        options = {"from_labels": 0.7, "num_labels": len(keys)}
        yield replace(scene, scores=labels, alone=keys[labels], options=options, keys=keys)


def scribbles() -> Iterator[Scene]:
    """A stroke along the middle of each part of each class; the scores are equal for all labels."""
    from skimage.morphology import skeletonize

    random = np.random.default_rng(0)
    for scene in voc(3):
        keys = np.array([label for label in np.unique(scene.truth) if label != VOID])
        strokes = np.full(scene.truth.shape, -1)
        for number, label in enumerate(keys):
            components, count = ndimage.label(scene.truth == label)
            for one in range(1, count + 1):
                mask = components == one
                inside = ndimage.binary_erosion(mask, disc(4))
                y, x = np.nonzero(skeletonize(inside))
                if mask.sum() < 200 or not len(y):
                    continue
                at = random.integers(len(y))
                near = np.hypot(y - y[at], x - x[at]) < 0.15 * max(mask.shape)
                drawn = np.zeros_like(mask)
                drawn[y[near], x[near]] = True
                strokes[ndimage.binary_dilation(drawn, disc(1)) & mask] = number
        if len(np.unique(strokes)) < 3:
            continue
        nearest = ndimage.distance_transform_edt(strokes < 0, return_distances=False, return_indices=True)
        equal = np.full((*strokes.shape, len(keys)), 1 / len(keys), np.float32)
        alone = keys[strokes[tuple(nearest)]]
        yield replace(scene, scores=equal, alone=alone, options={"scribbles": strokes}, keys=keys)


TASKS = {
    "voc": Task(voc, WELL_REPRESENTED, 21, 0),
    "camvid": Task(camvid, range(11), 11),
    "msrc": Task(msrc, range(21), 21),
    "binary": Task(binary, (0, 1), 2, 0),
    "pseudo-labels": Task(pseudo, WELL_REPRESENTED, 21, 0),
    "scribbles": Task(scribbles, WELL_REPRESENTED, 21, 0),
}
