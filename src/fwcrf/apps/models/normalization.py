"""Normalization of grey levels, 0 to 255, to a network's input."""

from __future__ import annotations

from typing import NamedTuple


class Normalization(NamedTuple):
    """(image - mean) / std per channel, both in grey levels."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


# ImageNet's means and deviations, for most networks, and the range [-1, 1], for Google's networks.
IMAGENET = Normalization((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
UNIT = Normalization((127.5, 127.5, 127.5), (127.5, 127.5, 127.5))
