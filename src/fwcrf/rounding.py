"""From a point of the simplices to labels."""

from __future__ import annotations

from torch import Tensor


def nearest(x: Tensor) -> Tensor:
    """The most likely label of each node: the nearest vertex of its simplex. ``(*batch, n)``."""
    return x.argmax(-1)
