"""How many threads a native call may use."""

from __future__ import annotations

import os

import torch

# Below this many multiplications a thread costs more to wake than it saves.
_WORK_PER_THREAD = 400_000
_forked = False


def _after_fork() -> None:
    global _forked
    _forked = True


# A forked child inherits an OpenMP pool without its threads: waiting for them would hang.
os.register_at_fork(after_in_child=_after_fork)


def threads_for(work: int) -> int:
    """``torch.get_num_threads()``, fewer for little work, one in a forked process."""
    if _forked:
        return 1
    return max(1, min(torch.get_num_threads(), work // _WORK_PER_THREAD))
