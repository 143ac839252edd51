"""Photographs of scikit-image, with the logits of DeepLabv3-MobileNetV2 stored beside this file.

The network was trained for the 21 classes of PASCAL VOC. Its logits lie at every eighth pixel, from the
first.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fwcrf.apps.data.classes import VOC
from fwcrf.apps.models.resize import from_grid
from fwcrf.optional import needed
from fwcrf.torch_ops.printed import in_one_line

NAMES: tuple[str, ...] = ("astronaut", "camera", "chelsea", "coffee", "rocket")
STRIDE = 8
FOLDER: Path = Path(__file__).parent


class Example(NamedTuple):
    """A photograph, a network's logits for it, and the names of the labels."""

    image: np.ndarray
    logits: np.ndarray
    names: tuple[str, ...]

    __repr__ = in_one_line


def load(name: str, *, upsample: bool = True) -> Example:
    """A photograph ``(H, W, 3)`` of uint8, logits ``(H, W, 21)`` of float32, and the names of the 21 labels.

    ``name`` is one of ``NAMES``. The photograph ``"camera"`` is grey, ``(H, W)``. scikit-image has the
    photographs: ``pip install 'fwcrf[images]'``.

    With ``upsample=False``, the logits are the network's own, ``(h, w, 21)``: sample (i, j) lies at pixel
    (8 i, 8 j). With ``upsample=True``, the values between samples are interpolated linearly.
    """
    image = photograph(name)
    with np.load(FOLDER / f"{name}.npz") as stored:
        logits = torch.from_numpy(stored["logits"]).float()
        size = tuple(stored["image_hw"].tolist())
    if image.shape[:2] != size:
        raise ValueError(
            f"scikit-image's photograph {name!r} has {image.shape[0]} x {image.shape[1]} pixels; the logits "
            f"are for {size[0]} x {size[1]}. Install scikit-image 0.26, with which they were made."
        )
    if upsample:
        logits = from_grid(logits[None], STRIDE, size)[0]
    return Example(image, logits.permute(1, 2, 0).contiguous().numpy(), VOC.names)


def photograph(name: str) -> np.ndarray:
    """The photograph, as scikit-image has it."""
    if name not in NAMES:
        raise ValueError(f"there is no example {name!r}; expected one of {', '.join(NAMES)}.")
    return getattr(needed("skimage.data", "images"), name)()
