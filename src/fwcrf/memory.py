"""Memory for the results of native calls."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fwcrf import _core

# Below this, torch's own allocation is as good.
_LARGE = 1 << 19


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Like ``torch.empty`` on the CPU, from memory that is kept for reuse: see ``csrc/memory.hpp``."""
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE:
        return torch.empty(tuple(shape), dtype=dtype)
    # Not a view: autograd adds gradients in place where their memory belongs to one tensor alone.
    return torch.frombuffer(_core.empty(size), dtype=dtype).resize_(tuple(shape))
