"""Where inference begins, in one pass over a network's logits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.energy import Energy
from fwcrf.kernels.ops import differentiated, untraced
from fwcrf.memory import empty
from fwcrf.threads import threads_for


class Start(NamedTuple):
    """Energies that are known to be finite, and the point ``softmax(-unary)``: both ``(*batch, n, L)``."""

    unary: Tensor
    x: Tensor


def start(logits: Tensor) -> Start | None:
    """Of logits ``(*batch, L, n)``; None if one is not finite, or torch has to see what is done to them.

    >>> start(torch.tensor([[0.0, 1.0], [0.0, 1.0]])).x
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    if logits.dtype not in (torch.float32, torch.float64) or logits.numel() == 0:
        return None
    if not untraced(logits) or differentiated(logits):
        return None
    given = logits.detach().contiguous().view(-1, *logits.shape[-2:])
    shape = (*logits.shape[:-2], logits.shape[-1], logits.shape[-2])
    unary, x = empty(shape, logits.dtype), empty(shape, logits.dtype)
    flat_unary, flat_x = (t.view(-1, *shape[-2:]) for t in (unary, x))
    # About eight operations per entry.
    finite = _core.start(given, flat_unary, flat_x, threads_for(8 * x.numel()))
    return Start(unary, x) if finite else None


@dataclass(frozen=True, eq=False)
class Begun(Energy):
    """An energy of a ``Start``."""

    first: list[Tensor] = field(default_factory=list, repr=False)

    @staticmethod
    def at(start: Start, pairwise: object) -> Begun:
        return Begun(pairwise, start.unary, [start.x])  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        """The unary has been looked at."""

    def _start(self) -> Tensor:
        # Once: what it is given to may write over it.
        return self.first.pop() if self.first else super()._start()
