"""The PASCAL VOC colour map, and label maps drawn over images."""

from __future__ import annotations

import numpy as np


def voc(count: int = 256) -> np.ndarray:
    """First colours of the VOC colour map, ``(count, 3)`` uint8.

    Bits 0, 1, 2 of the label are the highest bits of red, green, blue, bits 3, 4, 5 the next, and so on.

    >>> voc(4).tolist()
    [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]]
    """
    labels = np.arange(count)
    colours = np.zeros((count, 3), np.uint8)
    for place in range(8):
        for channel in range(3):
            bit = labels >> (3 * place + channel) & 1
            colours[:, channel] |= (bit << (7 - place)).astype(np.uint8)
    return colours


def overlay(image: np.ndarray, labels: np.ndarray, opacity: float = 0.5) -> np.ndarray:
    """Picture with coloured labels, ``(H, W, 3)`` uint8. Label 0, the background, stays uncoloured.

    ``image`` is as in ``as_picture``.
    """
    shown = as_picture(image)
    coloured = (1 - opacity) * shown + opacity * voc()[labels % 256]
    return np.rint(np.where((labels > 0)[..., None], coloured, shown)).astype(np.uint8)


def as_picture(image: np.ndarray) -> np.ndarray:
    """Picture of an image, ``(H, W, 3)`` of grey levels 0 to 255, uint8 if the image is.

    ``image`` is ``(H, W)`` or ``(H, W, channels)``. With one or two channels the first is shown as grey,
    else the first three as RGB. Values that are not uint8 are rescaled from [min, max] to [0, 255].
    """
    image = image[..., None] if image.ndim == 2 else image
    shown = image[..., :3] if image.shape[-1] >= 3 else np.repeat(image[..., :1], 3, -1)
    if shown.dtype == np.uint8:
        return shown
    low, high = float(shown.min()), float(shown.max())
    return (shown.astype(np.float64) - low) * (255.0 / (high - low or 1.0))
