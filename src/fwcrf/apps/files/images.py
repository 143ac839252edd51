"""Images and volumes from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fwcrf.apps.files.arrays import read_npy, read_npz
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_of
from fwcrf.apps.files.limits import DEFAULT_LIMIT
from fwcrf.apps.files.nifti import read_nifti
from fwcrf.apps.files.pictures import read_colours
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True)
class Picture:
    """Image ``(*grid, channels)``, or ``(*grid)`` if grey, with the geometry that its file states."""

    values: np.ndarray
    spatial_dims: int | None = None  # number of axes of the grid; None if the file does not say
    spacing: tuple[float, ...] | None = None  # size of a voxel in millimetres
    affine: np.ndarray | None = None  # matrix from voxels to the unit of the header
    header: Any = None  # of a NIfTI file

    __repr__ = in_one_line


def read_image(path: Path | str, *, key: str | None = None, limit: int = DEFAULT_LIMIT) -> Picture:
    """Image or volume from PNG, JPEG, TIFF, ``.npy``, ``.npz`` (``key`` names the array) or NIfTI.

    A file that would take more than ``limit`` bytes of memory raises FileError before it is decoded.
    """
    path = Path(path)
    form = format_of(path)
    if form == "npy":
        return Picture(read_npy(path, limit=limit))
    if form == "npz":
        return Picture(read_npz(path, key, prefer=("image",), limit=limit)[1])
    if form == "nifti":
        values, space = read_nifti(path, limit)
        if values.ndim not in (3, 4):
            raise FileError(f"{path} has shape {values.shape}; expected three axes, and optionally channels.")
        return Picture(values, 3, space.spacing, space.affine, space.header)
    values = read_colours(path, form, limit)
    return Picture(values, values.ndim - 1)
