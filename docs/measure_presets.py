"""Measure the presets on the scores of real networks, and write the tables of presets.md.

    FWCRF_DATA=DATA python docs/measure_presets.py            # the tables of the presets
    FWCRF_DATA=DATA python docs/measure_presets.py --choose   # the default by cross-validation
    FWCRF_DATA=DATA python docs/measure_presets.py --sweep    # one parameter at a time, into parameters.md

Measures are pooled over images: mIoU, the mIoU within five pixels of a change in the truth, pixel accuracy,
and the recall of small components (under 1 % of the image) and of thin parts (which an opening by a disc of
radius 4 removes). An interval is the standard deviation of the difference to the scores alone, by a paired
bootstrap over images.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from scipy import ndimage

import fwcrf
from fwcrf.apps.data.folder import Splits
from fwcrf.apps.data.scores import deeplab
from fwcrf.apps.models import ESPNet
from fwcrf.presets import Preset

DATA = Path(os.environ.get("FWCRF_DATA", "data"))
PAGE = Path(__file__).with_name("presets.md")
VOID = 255
WELL_REPRESENTED = (0, 8, 9, 10, 12, 13, 15, 17, 18)  # the classes of the VOC images at hand
MEASURES = ("mIoU", "borders", "accuracy", "small", "thin")


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


def confusions(labels: np.ndarray, truth: np.ndarray, masks: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Confusion matrices, one per mask: rows are true labels."""
    pairs = [count * truth[m].astype(int) + labels[m] for m in (mask & (truth != VOID) for mask in masks)]
    return np.stack([np.bincount(p, minlength=count * count).reshape(count, count) for p in pairs])


def measured(total: np.ndarray, task: Task) -> np.ndarray:
    """The measures of summed confusion matrices, in percent."""
    right = np.diagonal(total, axis1=-2, axis2=-1).astype(float)
    union = total.sum(-1) + total.sum(-2) - right
    iou = (right / np.maximum(union, 1))[:, list(task.classes)]
    seen = union[:, list(task.classes)] > 0
    means = [iou[k][seen[k]].mean() for k in (0, 1)]
    things = [label for label in range(task.num_labels) if label != task.background]
    recalls = [right[k][things].sum() / max(total[k][things].sum(), 1) for k in (2, 3)]
    return 100 * np.array([*means, right[0].sum() / total[0].sum(), *recalls])


def run(task: Task, settings: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Confusion matrices ``(images, 4, L, L)`` of the scores alone and of each setting."""
    found: dict[str, list[np.ndarray]] = {"scores alone": [], **{name: [] for name in settings}}
    for scene in task.scenes():
        masks = parts(scene.truth, task.background)
        found["scores alone"].append(confusions(scene.alone, scene.truth, masks, task.num_labels))
        for name, arguments in settings.items():
            labels = fwcrf.refine(scene.image, scene.scores, **{**arguments, **scene.options})
            labels = labels if scene.keys is None else scene.keys[labels]
            found[name].append(confusions(labels, scene.truth, masks, task.num_labels))
    return {name: np.stack(each).astype(np.int64) for name, each in found.items()}


def table(found: Mapping[str, np.ndarray], task: Task) -> str:
    """A table with the measures of each setting and the interval of the difference."""
    lines = [f"| {' | '.join(('', *MEASURES))} |", "|---|" + "---:|" * len(MEASURES)]
    count = len(found["scores alone"])
    draws = np.random.default_rng(0).integers(0, count, (200, count))
    alone = np.stack([measured(found["scores alone"][draw].sum(0), task) for draw in draws])
    for name, each in found.items():
        values = measured(each.sum(0), task)
        spread = np.std([measured(each[draw].sum(0), task) for draw in draws] - alone, axis=0)
        cells = [f"{v:.1f} ± {s:.1f}" for v, s in zip(values, spread, strict=True)]
        if name == "scores alone":
            cells = [f"{v:.1f}" for v in values]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


# --- data -------------------------------------------------------------------------------------------------


def channels_last(tensor: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.movedim(0, -1).numpy())


def voc() -> Iterator[Scene]:
    data = deeplab(DATA / "voc2012")
    for image, truth, logits in (data[k] for k in range(len(data))):
        scores = channels_last(logits)
        yield Scene(channels_last(image), scores, truth.numpy(), scores.argmax(-1), {"from_logits": True})


def camvid() -> Iterator[Scene]:
    net = ESPNet.from_file(DATA / "weights" / "espnet_p2q8_camvid.safetensors")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in net.normalization)
    data = Splits(DATA / "camvid", "test")
    for image, truth in (data[k] for k in range(len(data))):
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
    for scene in list(voc())[::3]:
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

# --- tables -----------------------------------------------------------------------------------------------

# Of each table: the task and the presets that it compares.
TABLES = {
    "voc": ("default", "paper", "pydensecrf"),
    "camvid": ("default", "paper", "pydensecrf"),
    "msrc": ("default", "paper", "pydensecrf"),
    "binary": ("binary", "default", "paper"),
    "pseudo-labels": ("pseudo-labels", "default", "paper", "pydensecrf"),
    "scribbles": ("scribbles", "default", "paper"),
}
# Candidates for the default: bilateral kernels, weights and balances around the best of wider searches.
CANDIDATES = [
    (xy, color, weight, balance)
    for xy, color in ((50, 5), (80, 6), (80, 13))
    for weight in (1.4, 2.4, 4.0)
    for balance in (0.0, 0.3)
]


def write(name: str, text: str, file: Path = PAGE) -> None:
    """Replace the table of this name in a page."""
    begin, end = f"<!-- measured: {name} -->\n", "<!-- end -->"
    page = file.read_text()
    if begin not in page:
        raise SystemExit(f"{file} has no line {begin!r}")
    file.write_text(
        re.sub(re.escape(begin) + ".*?" + end, begin + "\n" + text + "\n\n" + end, page, flags=re.S)
    )
    print(f"{name}\n{text}\n", flush=True)


def candidate(
    xy: float = 80,
    color: float = 6,
    weight: float = 2.4,
    balance: float = 0.3,
    near: float = 0.3,
    steps: int = 5,
) -> dict[str, Any]:
    """Arguments of ``refine``: the default with other values; ``near`` is the spatial weight."""
    kernels = (
        {"kind": "spatial", "xy": 3.0, "weight": near},
        {"kind": "bilateral", "xy": float(xy), "color": float(color), "weight": weight},
    )
    return Preset("", kernels, {"name": "l2fw"}, num_steps=steps, balance=balance).arguments()


# Values of one parameter; every other parameter is the default's.
SWEEPS: dict[str, dict[str, dict[str, Any]]] = {
    "weight": {f"{w:g}": {"weight": w} for w in (0.6, 1.2, 2.4, 5, 10, 20)},
    "weight at 80 px / 13 levels": {f"{w:g}": {"weight": w, "color": 13} for w in (0.6, 1.2, 2.4, 5, 10, 20)},
    "color": {f"{c}": {"color": c} for c in (3, 6, 13, 25)},
    "xy": {f"{xy}": {"xy": xy} for xy in (20, 50, 80, 160)},
    "spatial weight": {f"{w:g}": {"near": w} for w in (0, 0.3, 1, 3)},
    "balance": {f"{b:g}": {"balance": b} for b in (0, 0.15, 0.3, 0.6)},
    "num_steps": {f"{k}": {"steps": k} for k in (1, 2, 3, 5, 10, 20)},
}


def sweep() -> None:
    """Tables of parameters.md: gains over the scores alone, on every fourth VOC image."""
    task = replace(TASKS["voc"], scenes=lambda: (scene for k, scene in enumerate(voc()) if k % 4 == 0))
    settings = {f"{n}: {v}": candidate(**given) for n, each in SWEEPS.items() for v, given in each.items()}
    found = run(task, settings)
    alone = measured(found["scores alone"].sum(0), task)
    for name, each in SWEEPS.items():
        lines = [f"| {name} | mIoU | borders | small | thin |", "|---|---:|---:|---:|---:|"]
        for value in each:
            gain = measured(found[f"{name}: {value}"].sum(0), task) - alone
            lines.append(f"| {value} | {' | '.join(f'{gain[k]:+.1f}' for k in (0, 1, 3, 4))} |")
        write(name, "\n".join(lines), PAGE.with_name("parameters.md"))


def choose() -> str:
    """The candidate that is best on one half of the VOC images, measured on the other half, and reversed."""
    task = TASKS["voc"]
    found = run(task, {str(c): candidate(*c) for c in CANDIDATES})
    lines = ["| chosen on | bilateral xy, color, weight, balance | mIoU | borders | small | thin |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    halves = {"every second image": slice(0, None, 2), "the rest": slice(1, None, 2)}
    for name, half in halves.items():
        other = next(h for n, h in halves.items() if n != name)
        alone = measured(found["scores alone"][half].sum(0), task)
        scores = {c: measured(found[str(c)][half].sum(0), task) - alone for c in CANDIDATES}
        # Nothing small or thin is given up; then accuracy of regions and of borders.
        kept = {c: s for c, s in scores.items() if min(s[3], s[4]) >= 0} or scores
        best = max(kept, key=lambda c: kept[c][0] + kept[c][1])
        gain = measured(found[str(best)][other].sum(0), task)
        gain -= measured(found["scores alone"][other].sum(0), task)
        cells = " | ".join(f"{gain[k]:+.1f}" for k in (0, 1, 3, 4))
        lines.append(f"| {name} | {', '.join(str(v) for v in best)} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    reader = argparse.ArgumentParser(description="Measure the presets on real scores.")
    reader.add_argument("--choose", action="store_true", help="choose the default by cross-validation")
    reader.add_argument("--only", choices=TABLES, nargs="*", default=[*TABLES])
    reader.add_argument("--sweep", action="store_true", help="vary one parameter at a time")
    given = reader.parse_args()
    if given.sweep:
        return sweep()
    if given.choose:
        return write("choice", choose())
    for name in given.only:
        settings = {preset: fwcrf.presets.get(preset).arguments() for preset in TABLES[name]}
        write(name, table(run(TASKS[name], settings), TASKS[name]))


if __name__ == "__main__":
    main()
