"""Locks of whole files by ``fcntl``, which Windows does not have."""

import fcntl

# The exception for a lock that another process holds.
HELD = BlockingIOError


def begin(descriptor: int) -> None:
    """Lock the file of a batch if no process holds it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    # Downgraded to a shared lock, so that workers can hold it too, even after the parent's death.
    join(descriptor)


def join(descriptor: int) -> None:
    """Hold the lock beside the batch and its other workers."""
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
