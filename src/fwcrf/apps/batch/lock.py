"""One batch at a time in a folder.

The lock goes away with the processes that hold it, however they end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fwcrf.storage.errors import FileError

try:
    import fcntl
except ImportError:  # not on Windows, where batches are not kept apart
    fcntl = None

_PATIENCE = 10.0  # seconds: for the workers of a batch that was killed


@contextmanager
def exclusive(folder: Path | str) -> Iterator[None]:
    """Keep other batches out of ``folder``; the workers of this one may come in by ``share``."""
    descriptor = _open(folder)
    try:
        if fcntl is not None:
            _wait(descriptor, folder)
            # In common from here on, so that each worker can hold it too, longer than the parent if need be.
            _take(descriptor, fcntl.LOCK_SH, folder)
        yield
    finally:
        os.close(descriptor)


def share(folder: Path | str) -> None:
    """Keep other batches out of ``folder`` for as long as this process lives."""
    if fcntl is not None:
        _take(_open(folder), fcntl.LOCK_SH, folder)


def _open(folder: Path | str) -> int:
    return os.open(Path(folder) / ".fwcrf-batch.lock", os.O_CREAT | os.O_RDWR, 0o666)


def _wait(descriptor: int, folder: Path | str) -> None:
    assert fcntl is not None
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with suppress(FileError):
            return _take(descriptor, fcntl.LOCK_EX, folder)
        time.sleep(0.05)
    _take(descriptor, fcntl.LOCK_EX, folder)


def _take(descriptor: int, kind: int, folder: Path | str) -> None:
    assert fcntl is not None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FileError(
            f"another batch is writing to {folder}; wait for it to end, or choose another folder."
        ) from error
    except OSError:
        # A file system without locks.
        return
