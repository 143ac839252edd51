"""The place of one raster on another one, from the coordinate systems and transforms of both."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.place import TOLERANCE, along


class Place(NamedTuple):
    """Sample i of the scores lies at pixel ``offset + stride * i`` of the image, along rows and columns."""

    stride: tuple[float, float]
    offset: tuple[float, float]
    same: bool  # sample i lies at pixel i, and there are as many


SAME: Place = Place((1.0, 1.0), (0.0, 0.0), True)


def has_place(dataset: Any) -> bool:
    """True if a dataset says where on Earth, or in its own coordinates, it lies."""
    return dataset.crs is not None or not dataset.transform.is_identity


def place_on(image: Any, scores: Any) -> Place:
    """The place of the scores on the image. Raises FileError if they do not cover the same area.

    Both are datasets of rasterio that have a place.
    """
    if image.crs is not None and scores.crs is not None and image.crs != scores.crs:
        raise FileError(
            f"{image.name} is in {_named(image.crs)}, and {scores.name} in {_named(scores.crs)}; expected "
            f"the same coordinate system: gdalwarp -t_srs {_named(image.crs)} brings the scores into it."
        )
    (a, b, c), (d, e, f), _ = np.linalg.solve(_matrix(image.transform), _matrix(scores.transform))
    extent = max(scores.width, scores.height)
    if min(a, e) <= 0 or max(abs(b), abs(d)) * extent > TOLERANCE:
        raise FileError(
            f"{scores.name} is turned or flipped against {image.name}; expected axes in the same directions: "
            "gdalwarp brings both onto one grid."
        )
    each = (
        along(image.height, scores.height, float(e), float(f)),
        along(image.width, scores.width, float(a), float(c)),
    )
    if None in each:
        raise FileError(
            f"{scores.name} covers {_bounds(scores)}, and {image.name} {_bounds(image)}; expected the same "
            "area, up to half a pixel of each: gdalwarp -te or rio clip --like cuts one of them."
        )
    stride, offset = zip(*(one for one in each if one is not None), strict=True)
    equal = stride == (1.0, 1.0) and offset == (0.0, 0.0) and image.shape == scores.shape
    return Place(stride, offset, equal)


def pixel_size(dataset: Any) -> tuple[float, float]:
    """The height and the width of a pixel, in the units of the coordinate system."""
    if not has_place(dataset):
        raise FileError(
            f"{dataset.name} has no coordinates; expected a transform, or bandwidths in pixels "
            "(units='pixels')."
        )
    if dataset.crs is not None and dataset.crs.is_geographic:
        raise FileError(
            f"{dataset.name} is in {_named(dataset.crs)}, whose units are degrees, of another length along "
            "each axis; expected a projected coordinate system (gdalwarp -t_srs), or bandwidths in pixels "
            "(units='pixels')."
        )
    t = dataset.transform
    return math.hypot(t.b, t.e), math.hypot(t.a, t.d)


def _matrix(transform: Any) -> np.ndarray:
    # Versions of affine differ in the operator of their product.
    return np.array(transform).reshape(3, 3)


def _named(crs: Any) -> str:
    return crs.to_string()[:60]


def _bounds(dataset: Any) -> str:
    left, bottom, right, top = dataset.bounds
    return f"x {left:.10g} to {right:.10g}, y {bottom:.10g} to {top:.10g}"
