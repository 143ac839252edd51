"""Measures pseudo labels: `python docs/measure_pseudo_labels.py DATA`, or with `--draw PICTURE` draws some.

Activation maps of a classifier are not at hand. Maps like them are made from a segmentation network's scores,
blurred by 16 pixels: large where the network sees an object, and without its outline.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

import fwcrf
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.files.palette import overlay
from fwcrf.examples import load
from fwcrf.kernels import Bilateral, Spatial

CLASSES = (0, 8, 9, 10, 12, 13, 15, 17, 18)
PLAIN = {
    "solver": "mf", "num_steps": 10, "self_edges": True,
    "kernels": [Spatial(3.0, weight=3.0), Bilateral(50.0, 5.0, weight=10.0)],
}  # fmt: skip
METHODS = {"maps alone": {"num_steps": 0}, "the plain recipe's settings": PLAIN, "preset": {}}
THRESHOLD, SINGLE = (0.2, 0.5), 0.35


def read(val: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """An image, its truth, its activation maps at every eighth pixel, and the labels that it has."""
    image = np.asarray(Image.open(val / "images" / f"{name}.jpg"))
    truth = np.asarray(Image.open(val / "labels" / f"{name}.png")).astype(np.int64)
    with np.load(val / "logits_deeplabv3" / f"{name}.npz") as stored:
        p = torch.softmax(torch.from_numpy(stored["logits"]).float(), 0).numpy()
    classes = [int(one) for one in np.unique(truth) if one not in (0, 255)]
    maps = np.stack([gaussian_filter(p[one], 2.0) for one in classes], -1)
    return image, truth, maps, classes


def measure(data: str) -> None:
    torch.set_num_threads(1)
    val = Path(data) / "voc2012" / "val"
    names = (val.parent / "val.txt").read_text().split()
    names = names[len(names) // 2 :]
    confusions = {method: (Confusion(21), Confusion(21)) for method in METHODS}
    sure = dict.fromkeys(METHODS, 0.0)
    for name in names:
        image, truth, maps, classes = read(val, name)
        for method, settings in METHODS.items():
            for confusion, threshold in zip(confusions[method], (THRESHOLD, SINGLE), strict=True):
                labels = fwcrf.pseudo_labels(
                    image, maps, classes, threshold=threshold, align=(8, 0), **settings
                )
                known = np.where(labels == 255, 255, truth)
                confusion.update(
                    torch.from_numpy(np.where(labels == 255, 0, labels)), torch.from_numpy(known)
                )
                if threshold == THRESHOLD:
                    sure[method] += (labels != 255)[truth != 255].mean() / len(names)
    print("| | sure pixels | mIoU of sure pixels | mIoU, one threshold |\n|---|---|---|---|")
    for method, pair in confusions.items():
        band, whole = (100 * one.mean_iou(CLASSES) for one in pair)
        print(f"| {method} | {100 * sure[method]:.1f} % | {band:.1f} | {whole:.1f} |")


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
            labels = fwcrf.pseudo_labels(example.image, maps, [label], threshold=THRESHOLD, **more)
            row.append(overlay(example.image, labels))
        rows.append(np.concatenate([np.asarray(Image.fromarray(one).resize((300, 220))) for one in row], 1))
    Image.fromarray(np.concatenate(rows)).save(path)


if __name__ == "__main__":
    draw(sys.argv[2]) if sys.argv[1] == "--draw" else measure(sys.argv[1])
