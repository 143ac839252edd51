"""File lock: at most one batch at a time writes to a folder.

The operating system releases the lock when the processes that hold it end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fwcrf.apps.files.errors import FileError

try:
    import fcntl
except ImportError:  # Windows has no fcntl; there batches are not locked
    fcntl = None

NAME = ".fwcrf-batch.lock"
_PATIENCE = 10.0  # seconds to wait for the workers of a killed batch to exit


@contextmanager
def exclusive(folder: Path | str) -> Iterator[None]:
    """Lock ``folder`` against other batches; workers of this batch call ``share``."""
    descriptor = _open(folder)
    try:
        if fcntl is not None:
            _lock_exclusively(descriptor, folder)
            # Downgraded to a shared lock, so that workers can hold it too, even after the parent's death.
            _lock(descriptor, fcntl.LOCK_SH, folder)
        yield
    finally:
        os.close(descriptor)


def share(folder: Path | str) -> None:
    """Hold the shared lock of ``folder`` until this process ends."""
    if fcntl is not None:
        _lock(_open(folder), fcntl.LOCK_SH, folder)


def _open(folder: Path | str) -> int:
    path = Path(folder) / NAME
    try:
        # A link would create or open a file outside of the folder.
        return os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        link = " It is a symbolic link; remove the link." if path.is_symlink() else ""
        raise FileError(f"{path} cannot be opened: {error.strerror or error}.{link}") from error


def _lock_exclusively(descriptor: int, folder: Path | str) -> None:
    assert fcntl is not None
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with suppress(FileError):
            return _lock(descriptor, fcntl.LOCK_EX, folder)
        time.sleep(0.05)
    _lock(descriptor, fcntl.LOCK_EX, folder)


def _lock(descriptor: int, kind: int, folder: Path | str) -> None:
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileError(
            f"another batch is writing to {folder}; wait for it to end, or choose another folder."
        ) from error
    except OSError:
        # The file system has no locks.
        return
