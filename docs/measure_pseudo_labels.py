"""Measures pseudo labels: `python docs/measure_pseudo_labels.py DATA [STEP]`, every STEP-th of the images.

With `--draw PICTURE` in place of DATA it draws some.

Activation maps of a classifier are not at hand. Maps like them are made from a segmentation network's scores,
blurred by 16 pixels: large where the network sees an object, and without its outline.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import recipe
from PIL import Image
from scipy.ndimage import binary_erosion, gaussian_filter

import fwcrf
from fwcrf.apps.evaluation import Confusion
from fwcrf.examples import load

CLASSES = (0, 8, 9, 10, 12, 13, 15, 17, 18)
THRESHOLDS: tuple[tuple[float, ...], ...] = ((0.2, 0.5), (0.35,))
# The place of the stored maps on the image.
ALIGN = (8, 0)


def read(val: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """An image, its truth, its activation maps at every eighth pixel, and the labels that it has."""
    image = np.array(Image.open(val / "images" / f"{name}.jpg"))  # pydensecrf wants one that it could write
    truth = np.asarray(Image.open(val / "labels" / f"{name}.png")).astype(np.int64)
    with np.load(val / "logits_deeplabv3" / f"{name}.npz") as stored:
        p = torch.softmax(torch.from_numpy(stored["logits"]).float(), 0).numpy()
    classes = [int(one) for one in np.unique(truth) if one not in (0, 255)]
    maps = np.stack([gaussian_filter(p[one], 2.0) for one in classes], -1)
    return image, truth, maps, classes


def enlarged(image: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Maps of the size of the image, as ``fwcrf.pseudo_labels`` resamples them."""
    from fwcrf.inputs.resample import aligned, needed, resample

    alignment = aligned(image.shape[:2], maps.shape[:2], ALIGN)
    window = tuple(slice(0, size) for size in image.shape[:2])
    return resample(torch.from_numpy(maps)[needed(window, alignment)], window, alignment).numpy()


Method = Callable[[np.ndarray, np.ndarray, list[int], tuple[float, ...]], np.ndarray]


def methods() -> dict[str, Method]:
    """Functions of an image, its maps, its classes and thresholds, which return labels."""

    def ours(**settings: Any) -> Method:
        return lambda image, maps, classes, thresholds: fwcrf.pseudo_labels(
            image, maps, classes, threshold=thresholds, align=ALIGN, **settings
        )

    def same(image, maps, classes, thresholds):
        found = ours(**recipe.SETTINGS, confidence=recipe.confidence(len(classes) + 1))
        return found(image, maps, classes, thresholds)

    def plain(package: str) -> Method:
        return lambda image, maps, classes, thresholds: recipe.pseudo_labels(
            package, image, enlarged(image, maps), classes, thresholds
        )

    return {
        "maps alone": ours(num_steps=0),
        "the plain recipe, pydensecrf": plain("pydensecrf"),
        "the same by the drop-in": plain("fwcrf.pydensecrf"),
        "`pseudo_labels` with its settings": same,
        "`pseudo_labels`": ours(),
    }


def measure(data: str, step: str = "1") -> None:
    torch.set_num_threads(1)
    val = Path(data) / "voc2012" / "val"
    names = (val.parent / "val.txt").read_text().split()
    names = names[len(names) // 2 :: int(step)]
    every = methods()
    confusions = {method: (Confusion(21), Confusion(21)) for method in every}
    sure, same = (dict.fromkeys(every, 0.0) for _ in range(2))
    times: dict[str, list[float]] = {method: [] for method in every}
    for name in names:
        image, truth, maps, classes = read(val, name)
        for place, thresholds in enumerate(THRESHOLDS):
            found: dict[str, np.ndarray] = {}
            for method, run in every.items():
                begin = time.process_time()
                found[method] = run(image, maps, classes, thresholds)
                if len(thresholds) == 1:
                    times[method].append(time.process_time() - begin)
            for method, labels in found.items():
                known = torch.from_numpy(np.where(labels == 255, 255, truth))
                confusions[method][place].update(
                    torch.from_numpy(np.where(labels == 255, 0, labels).astype(np.int64)), known
                )
                if place == 0:
                    sure[method] += (labels != 255)[truth != 255].mean() / len(names)
                    same[method] += (labels == found["the plain recipe, pydensecrf"]).mean() / len(names)
    print(f"{len(names)} images; times are medians of processor time, one threshold")
    print(
        "| | sure pixels | mIoU of sure pixels | mIoU, one threshold | same labels as pydensecrf | time |\n"
        "|---|---|---|---|---|---|"
    )
    for method, pair in confusions.items():
        band, whole = (100 * one.mean_iou(CLASSES) for one in pair)
        print(
            f"| {method} | {100 * sure[method]:.1f} % | {band:.1f} | {whole:.1f} "
            f"| {100 * same[method]:.2f} % | {1000 * float(np.median(times[method])):.0f} ms |"
        )


# In the picture: the object, and pixels that are not sure.
OBJECT, UNSURE = (0, 200, 255), (255, 220, 0)


def drawn(image: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The image with the object and the unsure pixels tinted, and a white line around both."""
    shown = image.astype(np.float64)
    for colour, where in ((OBJECT, (labels != 0) & (labels != 255)), (UNSURE, labels == 255)):
        shown[where] = 0.45 * shown[where] + 0.55 * np.array(colour)
        shown[where & ~binary_erosion(where, iterations=2, border_value=1)] = 255
    return np.rint(shown).astype(np.uint8)


def draw(path: str) -> None:
    """Two photographs, their maps above the thresholds, and their pseudo labels."""
    rows = []
    for name, label in (("chelsea", 8), ("astronaut", 15)):
        example = load(name)
        z = example.logits.astype(np.float64)
        p = np.exp(z - z.max(-1, keepdims=True))
        maps = gaussian_filter(p[..., label] / p.sum(-1), 16.0)[..., None].astype(np.float32)
        row = [example.image]
        for more in ({"num_steps": 0}, {}):
            labels = fwcrf.pseudo_labels(example.image, maps, [label], threshold=THRESHOLDS[0], **more)
            row.append(drawn(example.image, labels))
        rows.append(np.concatenate([np.asarray(Image.fromarray(one).resize((300, 220))) for one in row], 1))
    Image.fromarray(np.concatenate(rows)).save(path, quality=85)


if __name__ == "__main__":
    draw(sys.argv[2]) if sys.argv[1] == "--draw" else measure(*sys.argv[1:])
