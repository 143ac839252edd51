"""Atomic writes: a file is complete or unchanged.

The bytes go to a temporary file in the same folder. It is flushed to the disk and then renamed over the old
file. A process that is killed before the rename leaves the temporary file and the old file unchanged.

A special file, a device or a pipe such as /dev/null, is written in place: a rename would replace it.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fwcrf.apps.files.errors import FileError

# A temporary name does not contain the file's name, which may already have the maximum length.
_SUFFIX = ".fwcrf-part"


@contextmanager
def writing(path: Path | str) -> Iterator[BinaryIO]:
    """Binary file that is renamed to ``path`` when the block ends without an exception."""
    path = Path(path)
    try:
        if is_special(path):
            with open(path, "wb") as file:
                with _original_error(wrapped := _NoDescriptor(file)):
                    yield wrapped  # type: ignore[misc]
                file.flush()
            return
        with staging(path.parent if not path.is_symlink() else path.resolve().parent) as (file, temporary):
            yield file
        put_in_place(temporary, path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}.") from error


@contextmanager
def staging(folder: Path | str) -> Iterator[tuple[BinaryIO, Path]]:
    """Temporary binary file in ``folder``, and its path. It is flushed at the end and removed on error."""
    temporary = Path(folder) / f".{secrets.token_hex(8)}{_SUFFIX}"
    # os.open, because files of the tempfile module are readable by their owner only.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(descriptor, "wb") as file:
            with _original_error(wrapped := _NoDescriptor(file)):
                yield wrapped, temporary  # type: ignore[misc]
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def staged(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Temporary files, for libraries that write by name; renamed to ``paths`` at the end of the block."""
    files: list[Path] = []
    try:
        for path in paths:
            with staging(path.resolve().parent) as (_, temporary):
                files.append(temporary)
        yield files
        for temporary, path in zip(files, paths, strict=True):
            put_in_place(temporary, path)
    finally:
        for temporary in files:
            temporary.unlink(missing_ok=True)


class _NoDescriptor:
    """Binary file without ``fileno``: numpy and libtiff write to a descriptor directly and lose errors."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.error: OSError | None = None
        self.flush, self.seek, self.tell, self.seekable = file.flush, file.seek, file.tell, file.seekable

    def read(self, *_: Any) -> bytes:
        raise io.UnsupportedOperation("read")  # numpy checks that the method exists

    def write(self, data: Any) -> int:
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise


@contextmanager
def _original_error(file: _NoDescriptor) -> Iterator[None]:
    """Raise the OSError of ``file`` in place of an exception by which a library hides it."""
    try:
        yield
    except Exception as error:
        raise (file.error or error) from None


def is_special(path: Path | str) -> bool:
    """True for a device, a pipe or a socket: it exists, and is neither a regular file nor a folder."""
    path = Path(path)
    return path.exists() and not path.is_file() and not path.is_dir()


def put_in_place(temporary: Path, path: Path, *, follow: bool = True) -> None:
    """Rename a staged file to ``path``. If ``path`` is a symbolic link, its target is replaced.

    Without ``follow`` the link itself is replaced.
    """
    path = path.resolve() if follow else path
    try:
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_leftovers(folder: Path | str) -> int:
    """Remove the temporary files that a killed process left in ``folder``; return their number."""
    found = list(Path(folder).glob(f".*{_SUFFIX}"))
    for path in found:
        path.unlink(missing_ok=True)
    return len(found)


def check_writable(path: Path | str) -> Path:
    """Return ``path``; raise FileError if it cannot be written. For use before a long computation."""
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{path} is a folder; expected the name of a file to write.")
    if is_special(path):
        if not os.access(path, os.W_OK):
            raise FileError(f"{path} cannot be written: {os.strerror(errno.EACCES)}.")
        return path
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
    """Flush a folder, if the system can, so that a rename survives a power failure."""
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
