"""NIfTI volumes, read and written by nibabel."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.limits import check_size
from fwcrf.optional import needed

# Most bytes of header extensions before the values; nibabel reads them all into memory.
_MOST_HEADER_BYTES = 1 << 24


def read_nifti(path: Path, limit: int) -> tuple[np.ndarray, np.ndarray, tuple[float, ...]]:
    """Values as stored, affine matrix to millimetres, and the size of a voxel along three axes."""
    nibabel = needed("nibabel", "medical")
    try:
        _check_header(path, limit)
        volume = nibabel.load(path)
        values = np.asanyarray(volume.dataobj)
        spacing = tuple(float(s) for s in volume.header.get_zooms()[:3])
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{path} cannot be read as NIfTI: {error}. Is it truncated or damaged?") from error
    return values.astype(values.dtype.newbyteorder("="), copy=False), volume.affine, spacing


def write_nifti(file: IO[bytes], labels: np.ndarray, affine: np.ndarray | None, compressed: bool) -> None:
    """Write a label map of three axes."""
    nibabel = needed("nibabel", "medical")
    volume = nibabel.Nifti1Image(labels, np.eye(4) if affine is None else affine, dtype=labels.dtype)
    data = volume.to_bytes()
    # mtime=0, so that equal labels give equal files.
    file.write(gzip.compress(data, mtime=0) if compressed else data)


def _check_header(path: Path, limit: int) -> None:
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    with open(path, "rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
    with gzip.open(path) if zipped else open(path, "rb") as file:
        start = file.read(540)
    kind, length = (Nifti2Header, 540) if start[4:7] == b"n+2" else (Nifti1Header, 348)
    if len(start) < length or (length == 348 and start[344:347] != b"n+1"):
        raise FileError(f"{path} does not start with a NIfTI header; expected a .nii or .nii.gz file.")
    header = kind(start[:length])
    if not 0 <= float(header["vox_offset"]) <= _MOST_HEADER_BYTES:
        raise FileError(
            f"{path} says its values start at byte {float(header['vox_offset']):.0f}; "
            f"expected at most {_MOST_HEADER_BYTES}."
        )
    # nibabel converts scaled values to float64.
    check_size(path, header.get_data_shape(), max(8, header.get_data_dtype().itemsize), limit)
