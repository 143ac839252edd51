"""Files that are written whole or not at all.

The bytes go to a temporary file in the same folder and are flushed to the disk; then it takes the place of
the old file in one step. Whoever is killed before that leaves a temporary file behind, and the old file as it
was.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fwcrf.storage.errors import FileError

# The name of a temporary file does not contain that of the file, which may be as long as names can be.
_SUFFIX = ".fwcrf-part"


@contextmanager
def writing(path: Path | str) -> Iterator[BinaryIO]:
    """A binary file that becomes ``path`` when the block ends without an exception."""
    path = Path(path)
    try:
        with staging(path.parent if not path.is_symlink() else path.resolve().parent) as (file, temporary):
            yield file
        put_in_place(temporary, path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def staging(folder: Path | str) -> Iterator[tuple[BinaryIO, Path]]:
    """A temporary file in ``folder`` and its path; flushed to the disk at the end, removed on error."""
    temporary = Path(folder) / f".{secrets.token_hex(8)}{_SUFFIX}"
    # Not by the tempfile module, whose files only their owner may read.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(descriptor, "wb") as file:
            plain = _Plain(file)
            try:
                yield plain, temporary  # type: ignore[misc]
            except Exception as error:
                # Some libraries have words of their own for a full disk.
                raise (plain.error or error) from None
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class _Plain:
    """A file without its descriptor, past which numpy and libtiff write without saying what went wrong."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None
        self.flush, self.seek, self.tell, self.seekable = file.flush, file.seek, file.tell, file.seekable

    def read(self, *_: Any) -> bytes:
        raise io.UnsupportedOperation("read")  # numpy asks whether there is such a method

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise


def put_in_place(temporary: Path, path: Path) -> None:
    """Let a staged file take the place of ``path``; a symbolic link keeps pointing where it did."""
    path = path.resolve()
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_leftovers(folder: Path | str) -> int:
    """Remove the temporary files that a killed process left in ``folder``, and say how many."""
    found = list(Path(folder).glob(f".*{_SUFFIX}"))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def check_writable(path: Path | str) -> Path:
    """Refuse, before any work is done, a path that could not be written after it."""
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{path} is a folder; expected the name of a file to write.")
    if path.exists() and not path.is_file():
        raise FileError(f"{path} is not a regular file; expected the name of a file to write.")
    if not path.resolve().parent.is_dir():
        raise FileError(f"{path} cannot be written: there is no folder {path.parent}; make it first.")
    try:
        with staging(path.resolve().parent) as (_, temporary):
            pass
        temporary.unlink()
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}.") from error
    return path


def _flush_folder(folder: Path) -> None:
    """Make a renaming last through a power failure, where folders can be flushed."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
