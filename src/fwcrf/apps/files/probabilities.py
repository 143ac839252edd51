"""Probabilities in files."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

from fwcrf.apps.files.arrays import write_npy, write_npz
from fwcrf.apps.files.atomic import is_special
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import ending, format_by_name
from fwcrf.apps.files.nifti import write_nifti
from fwcrf.apps.files.pictures import write_float_tiff

_WRITTEN = ("npy", "npz", "tiff", "nifti")


def check_probabilities_name(path: Path | str) -> str:
    """Format of a file name. Raises FileError if probabilities cannot be written in it.

    A special file without an ending, such as /dev/null, has the format "npy".
    """
    form = format_by_name(path) or ("npy" if is_special(path) else None)
    if form not in _WRITTEN:
        raise FileError(f"{path}: probabilities are written as .npy, .npz, .tif, .nii or .nii.gz.")
    return form


def ending_beside(labels: Path | str) -> str:
    """Ending of a file of probabilities beside a label map: the same, if the format has a place in space.

    >>> ending_beside("scan.nii.gz"), ending_beside("scene.tif"), ending_beside("cat.png")
    ('.nii.gz', '.tif', '.npz')
    """
    return ending(labels) if format_by_name(labels) in ("tiff", "nifti") else ".npz"


def encode_probabilities(
    file: IO[bytes], name: str, values: np.ndarray, *, affine: np.ndarray | None = None, header: Any = None
) -> None:
    """Write probabilities, the labels on the last axis, to an open file, in the format of the name ``name``.

    ``affine`` and ``header``, of ``read_image``, are stored in NIfTI files only.
    """
    form = check_probabilities_name(name)
    if form == "npz":
        write_npz(file, probabilities=values)
    elif form == "tiff":
        write_float_tiff(file, values)
    elif form == "nifti":
        write_nifti(file, values, affine, compressed=name.endswith(".gz"), header=header)
    else:
        write_npy(file, values)
