"""``.npy`` and ``.npz`` files, without unpickling.

numpy trusts the sizes that a ``.npz`` archive states. This reader checks the header of the array first and
decompresses only the bytes that the header asks for.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.limits import DEFAULT_LIMIT, check_size

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npy(path: Path | str, *, limit: int = DEFAULT_LIMIT) -> np.ndarray:
    """Array of numbers from a ``.npy`` file."""
    with open(path, "rb") as file:
        return _read(file, str(path), limit)


def read_npz(
    path: Path | str, key: str | None = None, *, prefer: Sequence[str] = (), limit: int = DEFAULT_LIMIT
) -> tuple[str, np.ndarray]:
    """Name and array from a ``.npz`` file: ``key``, else the first name of ``prefer``, else the only one."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            chosen = _choose(str(path), names, key, prefer)
            with archive.open(f"{chosen}.npy") as file:
                return chosen, _read(file, f"{path}, array {chosen!r},", limit)
    except FileError:
        raise
    # The exceptions for a broken archive are undocumented: zlib.error, NotImplementedError, RuntimeError...
    except Exception as error:
        raise FileError(f"{path} is not a complete .npz file: {error}.") from error


def write_npy(file: IO[bytes], array: np.ndarray) -> None:
    """Write one array. An array of objects raises ValueError, because it would be pickled."""
    np.lib.format.write_array(file, array, allow_pickle=False)


def write_npz(file: IO[bytes], **arrays: np.ndarray) -> None:
    """Write named arrays, compressed. An array of objects raises ValueError: it would be pickled."""
    # numpy before 2.2 takes allow_pickle=False of savez_compressed for one more array to write.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_npy(member, array)


def _choose(path: str, names: list[str], key: str | None, prefer: Sequence[str]) -> str:
    listed = ", ".join(map(repr, names[:20])) or "none"
    if key is not None:
        if key not in names:
            raise FileError(f"{path} has no array {key!r}; it has {listed}.")
        return key
    for name in prefer:
        if name in names:
            return name
    if len(names) != 1:
        raise FileError(f"{path} has {len(names)} arrays ({listed}); choose one (key=, or --key).")
    return names[0]


def _read(file: IO[bytes], name: str, limit: int) -> np.ndarray:
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise FileError(
                f"{name} has version {version} of the format; expected plain numbers, 1.0 or 2.0."
            )
        shape, fortran_order, dtype = _HEADERS[version](file)
    except FileError:
        raise
    except Exception as error:
        raise FileError(f"{name} does not start like a .npy file: {error}.") from error
    if dtype.hasobject:
        raise FileError(
            f"{name} holds Python objects, which are not read because they can run code; save numbers."
        )
    if dtype.kind not in "buif":
        raise FileError(f"{name} has dtype {dtype}; expected whole or floating-point numbers.")
    data = np.empty(check_size(name, shape, dtype.itemsize, limit), np.uint8)
    view, done = data.data, 0
    while done < len(view):
        count = file.readinto(view[done : done + (1 << 24)])  # type: ignore[attr-defined]
        if not count:
            raise FileError(f"{name} is truncated: it ends after {done} of {len(view)} bytes.")
        done += count
    # torch needs the native byte order.
    values = data.view(dtype).reshape(shape, order="F" if fortran_order else "C")
    return values.astype(dtype.newbyteorder("="), copy=False)
