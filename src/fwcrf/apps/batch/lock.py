"""File lock: at most one batch at a time writes to a folder.

The operating system releases the lock when the processes that hold it end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fwcrf.apps.files.errors import FileError

try:
    from fwcrf.apps.batch import lock_posix as system
except ImportError:
    from fwcrf.apps.batch import lock_windows as system

NAME = ".fwcrf-batch.lock"
_PATIENCE = 10.0  # seconds to wait for the workers of a killed batch to exit


@contextmanager
def exclusive(folder: Path | str) -> Iterator[None]:
    """Lock ``folder`` against other batches; workers of this batch call ``share``."""
    descriptor = _open(folder)
    try:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            with suppress(FileError):
                _try(system.begin, descriptor, folder)
                break
            time.sleep(0.05)
        else:
            _try(system.begin, descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def share(folder: Path | str) -> None:
    """Keep other batches from ``folder`` until this process ends, also after the death of its batch."""
    _try(system.join, _open(folder), folder)


def _open(folder: Path | str) -> int:
    path = Path(folder) / NAME
    try:
        # A link would create or open a file outside of the folder.
        return os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        link = " It is a symbolic link; remove the link." if path.is_symlink() else ""
        raise FileError(f"{path} cannot be opened: {error.strerror or error}.{link}") from error


def _try(lock: Callable[[int], None], descriptor: int, folder: Path | str) -> None:
    try:
        lock(descriptor)
    except system.HELD as error:
        raise FileError(
            f"another batch is writing to {folder}; wait for it to end, or choose another folder."
        ) from error
    except OSError:
        # The file system has no locks.
        return
