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
    return os.open(Path(folder) / ".fwcrf-batch.lock", os.O_CREAT | os.O_RDWR, 0o666)


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
