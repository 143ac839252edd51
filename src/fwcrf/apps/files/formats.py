"""Format of a file: from its first bytes for reading, from its name for writing."""

from __future__ import annotations

from pathlib import Path

from fwcrf.apps.files.errors import FileError

_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"II*\0": "tiff",
    b"MM\0*": "tiff",
    b"II+\0": "tiff",
    b"MM\0+": "tiff",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
    b"PK\x05\x06": "npz",
    b"\x1f\x8b": "nifti",
}
_ENDINGS = {
    ".png": "png",
    ".jpg": "jpeg",
    ".jpeg": "jpeg",
    ".tif": "tiff",
    ".tiff": "tiff",
    ".npy": "npy",
    ".npz": "npz",
    ".nii": "nifti",
    ".nii.gz": "nifti",
}


def format_of(path: Path | str) -> str:
    """Format of a file, from its first bytes: "png", "jpeg", "tiff", "npy", "npz" or "nifti"."""
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{path} is a folder; expected a file.")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a regular file; expected one.")
    try:
        with open(path, "rb") as file:
            start = file.read(352)
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not start:
        raise FileError(f"{path} is empty; was writing it interrupted?")
    for beginning, name in _BEGINNINGS.items():
        if start.startswith(beginning):
            return name
    if start[344:348] in (b"n+1\0", b"ni1\0") or start[4:8] in (b"n+2\0", b"ni2\0"):
        return "nifti"
    raise FileError(
        f"{path} has an unknown format; expected PNG, JPEG, TIFF, .npy, .npz or NIfTI. "
        "The first bytes decide, not the name."
    )


def format_by_name(path: Path | str) -> str | None:
    """Format of a file name. None if the ending is unknown.

    >>> format_by_name("scan.nii.gz"), format_by_name("a.PNG"), format_by_name("notes.txt")
    ('nifti', 'png', None)
    """
    return _ENDINGS.get(ending(path))


def stem(path: Path | str) -> str:
    """File name without folder and ending. ``.nii.gz`` is one ending.

    >>> stem("scans/one.nii.gz"), stem("a.b.png")
    ('one', 'a.b')
    """
    return Path(path).name[: -len(ending(path)) or None]


def ending(path: Path | str) -> str:
    """Ending of a file name in small letters. ``.nii.gz`` is one ending."""
    name = Path(path).name.lower()
    return ".nii.gz" if name.endswith(".nii.gz") else Path(name).suffix
