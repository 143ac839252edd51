"""Locks of single bytes by ``msvcrt``, which has no shared locks.

A batch locks byte 0. Each of its workers locks a byte of its own behind it. A new batch needs byte 0, and
all other bytes for a moment: they show whether workers of a killed batch are still alive.
"""

# The attributes of msvcrt are known to type checkers on Windows only.
# pyright: reportAttributeAccessIssue=false

import msvcrt
import os

# The exception for a lock that another process holds.
HELD = PermissionError
_WORKERS = 1 << 16


def begin(descriptor: int) -> None:
    """Lock the file of a batch if no process holds it."""
    _lock(descriptor, 0, 1)
    try:
        _lock(descriptor, 1, _WORKERS)
    except OSError:
        _unlock(descriptor, 0, 1)
        raise
    _unlock(descriptor, 1, _WORKERS)


def join(descriptor: int) -> None:
    """Hold the lock beside the batch and its other workers."""
    for attempt in range(_WORKERS):
        try:
            return _lock(descriptor, 1 + (os.getpid() + attempt) % _WORKERS, 1)
        except HELD:
            if attempt + 1 == _WORKERS:
                raise


def _lock(descriptor: int, first: int, count: int) -> None:
    os.lseek(descriptor, first, os.SEEK_SET)
    msvcrt.locking(descriptor, msvcrt.LK_NBLCK, count)


def _unlock(descriptor: int, first: int, count: int) -> None:
    os.lseek(descriptor, first, os.SEEK_SET)
    msvcrt.locking(descriptor, msvcrt.LK_UNLCK, count)
