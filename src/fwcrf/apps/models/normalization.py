"""From grey levels, 0 to 255, to what a network was trained on."""

from __future__ import annotations

from typing import NamedTuple


class Normalization(NamedTuple):
    """(image - mean) / std per channel, both in grey levels."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


# Means and deviations of ImageNet, as most networks want them; and [-1, 1], as Google's do.
IMAGENET = Normalization((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
UNIT = Normalization((127.5, 127.5, 127.5), (127.5, 127.5, 127.5))
