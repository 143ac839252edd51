"""How many threads a native call may use."""

from __future__ import annotations

import os

import torch

# Below this many multiplications a thread costs more to wake than it saves.
_WORK_PER_THREAD = 400_000

# A forked child inherits an OpenMP pool without its threads, and the next parallel region, ours or
# torch's own, would wait for them for ever. torch's data loaders do the same in their workers.
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def threads_for(work: int) -> int:
    """``torch.get_num_threads()``, fewer for little work."""
    return max(1, min(torch.get_num_threads(), work // _WORK_PER_THREAD))
