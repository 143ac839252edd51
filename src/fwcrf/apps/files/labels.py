"""Label maps in files."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np

from fwcrf.apps.files.arrays import read_npy, read_npz, write_npy, write_npz
from fwcrf.apps.files.atomic import is_special, writing
from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.formats import format_by_name, format_of
from fwcrf.apps.files.limits import DEFAULT_LIMIT
from fwcrf.apps.files.nifti import read_nifti, write_nifti
from fwcrf.apps.files.pictures import read_indices, write_grey_tiff, write_indices

# Without JPEG, which would change the labels.
_WRITTEN = ("png", "npy", "npz", "tiff", "nifti")


def read_labels(path: Path | str, *, key: str | None = None, limit: int = DEFAULT_LIMIT) -> np.ndarray:
    """Label map, one whole number per pixel, from PNG, TIFF, ``.npy``, ``.npz`` or NIfTI."""
    path = Path(path)
    form = format_of(path)
    if form == "jpeg":
        raise FileError(f"{path} is a JPEG, which does not preserve labels; expected PNG or .npy.")
    if form == "npy":
        values = read_npy(path, limit=limit)
    elif form == "npz":
        values = read_npz(path, key, prefer=("labels",), limit=limit)[1]
    elif form == "nifti":
        values = read_nifti(path, limit)[0]
    else:
        values = read_indices(path, form, limit)
    if values.dtype.kind == "f" and np.array_equal(values, np.trunc(values)):
        if np.abs(values).max(initial=0) >= 2.0**63:
            raise FileError(f"{path} has values from 2^63 on; expected a label map, labels from 0 on.")
        values = values.astype(np.int64)
    if values.dtype.kind not in "bui":
        raise FileError(f"{path} has dtype {values.dtype}; expected a label map, whole numbers.")
    return values


def check_labels_name(path: Path | str) -> str:
    """Format of a file name. Raises FileError if label maps cannot be written in it.

    A special file without an ending, such as /dev/null, has the format "npy", which takes any labels.
    """
    form = format_by_name(path) or ("npy" if is_special(path) else None)
    if form not in _WRITTEN:
        lossy = ", and JPEG would change them" if form == "jpeg" else ""
        raise FileError(f"{path}: labels are written as .png, .npy, .npz, .tif, .nii or .nii.gz{lossy}.")
    return form


def write_labels(
    path: Path | str, labels: np.ndarray, *, affine: np.ndarray | None = None, header: Any = None
) -> None:
    """Write a label map atomically, in the format of the file name.

    A PNG gets the palette of PASCAL VOC. ``affine`` and ``header``, of ``read_image``, are stored in NIfTI
    files only.
    """
    check_labels_name(path)
    with writing(path) as file:
        encode_labels(file, str(path), labels, affine=affine, header=header)


def encode_labels(
    file: IO[bytes], name: str, labels: np.ndarray, *, affine: np.ndarray | None = None, header: Any = None
) -> None:
    """Write labels to an open file, in the format of the file name ``name``."""
    form = check_labels_name(name)
    narrow = _narrowed(labels)
    if form == "npy":
        write_npy(file, narrow)
    elif form == "npz":
        write_npz(file, labels=narrow)
    elif form == "nifti":
        if labels.ndim != 3:
            raise FileError(f"{name}: labels have shape {labels.shape}; NIfTI takes three axes, .npy any.")
        write_nifti(file, narrow, affine, compressed=name.endswith(".gz"), header=header)
    else:
        deepest = np.uint8 if form == "png" else np.uint16
        if labels.ndim != 2 or not np.can_cast(narrow.dtype, deepest):
            raise FileError(
                f"{name}: labels of shape {labels.shape} up to {labels.max()} do not fit; a {form} takes two "
                f"axes and labels up to {np.iinfo(deepest).max}, .npy any shape and label."
            )
        (write_indices if form == "png" else write_grey_tiff)(file, narrow)


def _narrowed(labels: np.ndarray) -> np.ndarray:
    """Labels in the smallest sufficient dtype, unsigned if possible, in C order."""
    if labels.size == 0:
        raise FileError(f"labels have shape {labels.shape}; expected at least one pixel.")
    least, greatest = int(labels.min()), int(labels.max())
    for dtype in (np.uint8, np.uint16, np.int32):
        if np.iinfo(dtype).min <= least and greatest <= np.iinfo(dtype).max:
            return labels.astype(dtype, order="C")
    return np.ascontiguousarray(labels)
