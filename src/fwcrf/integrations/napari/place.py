"""The place of one layer of napari on another one, from the transforms of both."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

# Differences below this share of a pixel are rounding.
_TOLERANCE = 0.1


def check_place(image: Any, layer: Any, grid: Sequence[int]) -> str | None:
    """A warning, or None if pixels of a layer lie where the pixels of the image with the same numbers lie.

    Raises ValueError if they lie elsewhere. ``grid`` is the size of the last axes of both. A layer without
    any transform on them, as of an array that is added by itself, is taken for the image's: the warning.
    """
    corners = np.array(list(itertools.product(*((0.0, size - 1.0) for size in grid))))
    world = np.array([layer.data_to_world(tuple(one)) for one in corners])[:, -len(grid) :]
    found = np.array([image.world_to_data(one) for one in world])[:, -len(grid) :]
    if np.abs(found - corners).max() < _TOLERANCE:
        return None
    if np.allclose(world, corners):
        return (
            f"{layer.name} has no scale and no translation, as {image.name} has, and is taken to lie on "
            f"{image.name} pixel by pixel."
        )
    first, step = found[0], (found[-1] - found[0]) / np.maximum(corners[-1], 1)
    raise ValueError(
        f"{layer.name} lies elsewhere than {image.name}: its first pixel is pixel {_rounded(first)} of the "
        f"image, and a pixel of it measures {_rounded(step)}; expected the same place. Resample or crop one "
        f"of them, or set scale, translate and the other transforms of {layer.name} to those of {image.name}."
    )


def _rounded(numbers: np.ndarray) -> list[float]:
    return (np.round(numbers, 2) + 0.0).tolist()  # without negative zeros
