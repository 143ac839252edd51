"""The place of scores on an image, from the affine matrices of both files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.torch_ops.native import warn_caller

# Differences below this share of a voxel or pixel are rounding of the programs that wrote the files.
TOLERANCE = 0.01
# Strides and offsets along the axes: sample i of the scores lies at offset + stride * i of the image.
Align = tuple[tuple[float, ...], tuple[float, ...]]


def along(pixels: int, samples: int, scale: float, start: float) -> tuple[float, float] | None:
    """Stride and offset along one axis; None if the ends differ by more than half a pixel and half a sample.

    Sample i covers ``start + scale * i`` to ``start + scale * (i + 1)``, where pixel i covers i to i + 1.

    >>> along(100, 25, 4.0, 0.0), along(100, 100, 1.0, 0.001), along(100, 100, 1.0, 30.0)
    ((4.0, 1.5), (1.0, 0.0), None)
    """
    most = (scale + 1.0) / 2
    if abs(start) > most or abs(start + scale * samples - pixels) > most:
        return None
    if pixels == samples and max(abs(start), abs(start + (scale - 1) * samples)) < TOLERANCE:
        return 1.0, 0.0
    return scale, start + (scale - 1) / 2


def place_in_space(
    names: tuple[str, str],
    affines: tuple[np.ndarray | None, np.ndarray | None],
    grids: tuple[Sequence[int], Sequence[int]],
    *,
    remedy: str = "nibabel.processing.resample_from_to",
) -> Align | None:
    """The place of scores on a volume; None if both have the same grid, or one of them has no affine.

    Raises FileError if they lie elsewhere, with ``remedy``, a function that brings one onto the other. The
    identity, which programs write where they know no affine, is taken for the other file's.
    """
    image, scores = affines
    if image is None or scores is None:
        return None
    identity = [bool(np.array_equal(one, np.eye(4))) for one in (image, scores)]
    if any(identity):
        if not all(identity):
            warn_caller(
                f"{names[identity.index(True)]} has no place in space, an identity as its affine, and is "
                f"taken to lie on {names[identity.index(False)]} voxel by voxel."
            )
        return None
    relative = np.linalg.solve(image, scores)
    scales, starts = np.diag(relative)[:3], relative[:3, 3] - (np.diag(relative)[:3] - 1) / 2
    beside = np.abs(relative[:3, :3] - np.diag(scales)).max() * max(grids[1])
    each = [along(*one) for one in zip(*grids, scales.tolist(), starts.tolist(), strict=True)]
    if scales.min() <= 0 or beside > 10 * TOLERANCE:
        raise FileError(
            f"{names[1]} is turned or flipped against {names[0]}: the axes are {_axes(scores)} and "
            f"{_axes(image)}; expected the same grid. {remedy} brings the scores onto it."
        )
    if None in each:
        raise FileError(
            f"{names[1]} lies elsewhere than {names[0]}: its first voxel is voxel "
            f"{_rounded(relative[:3, 3])} of the image, and a voxel of it measures "
            f"{_rounded(scales)}; expected the same place. {remedy} brings the scores onto the image."
        )
    strides, offsets = zip(*(one for one in each if one is not None), strict=True)
    same = set(strides) == {1.0} and set(offsets) == {0.0} and tuple(grids[0]) == tuple(grids[1])
    return None if same else (strides, offsets)


def _rounded(numbers: np.ndarray) -> list[float]:
    return (np.round(numbers, 2) + 0.0).tolist()  # without negative zeros


def _axes(affine: np.ndarray) -> str:
    """The directions of the axes, as RAS or LPI; of oblique ones the nearest."""
    main = np.abs(affine[:3, :3]).argmax(0)
    return "".join("RAS"[row] if affine[row, k] > 0 else "LPI"[row] for k, row in enumerate(main))
