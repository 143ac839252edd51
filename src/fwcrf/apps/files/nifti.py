"""NIfTI volumes, read and written by nibabel."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.limits import check_size
from fwcrf.optional import needed

# Most bytes of header extensions before the values; nibabel reads them all into memory.
_MOST_HEADER_BYTES = 1 << 24


# The size of a unit of length in millimetres; headers without a unit mean millimetres.
_UNITS = {"meter": 1000.0, "micron": 0.001}


class Space(NamedTuple):
    """The place of a volume, as its file states it."""

    affine: np.ndarray  # matrix from voxels to the unit of the header
    spacing: tuple[float, ...]  # size of a voxel along three axes, in millimetres
    header: Any  # of nibabel


def read_nifti(path: Path, limit: int) -> tuple[np.ndarray, Space]:
    """Values as stored, and their place."""
    nibabel = needed("nibabel", "medical")
    try:
        _check_header(path, limit)
        volume = nibabel.load(path)
        values = np.asanyarray(volume.dataobj)
        unit = _UNITS.get(volume.header.get_xyzt_units()[0], 1.0)
        spacing = tuple(unit * float(s) for s in volume.header.get_zooms()[:3])
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{path} cannot be read as NIfTI: {error}. Is it truncated or damaged?") from error
    return values.astype(values.dtype.newbyteorder("="), copy=False), Space(
        volume.affine, spacing, volume.header
    )


def write_nifti(
    file: IO[bytes], values: np.ndarray, affine: np.ndarray | None, compressed: bool, header: Any = None
) -> None:
    """Write a label map of three axes, or probabilities of four.

    Units, codes of the affine, description and extensions come from ``header``, if any.
    """
    nibabel = needed("nibabel", "medical")
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    affine = np.eye(4) if affine is None else affine
    volume = kind(values, affine, header=None if header is None else header.copy(), dtype=values.dtype)
    # The header has the range of the image's values, and the unit of its fourth axis.
    volume.header["cal_min"] = volume.header["cal_max"] = 0
    if values.ndim == 4:
        volume.header.set_zooms((*volume.header.get_zooms()[:3], 1.0))
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
