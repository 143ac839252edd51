"""Problems with fewer labels whose moves end where those with all labels do.

With Potts penalties and kernels that are not negative, neighbours speak only for labels that they have: label
s of a pixel gains at most R m_s on the others, where m_s is its largest x anywhere, and R the most that the
kernels give to all labels of a pixel together.

*Projection and vertex.* Where another label leads by 1/|scale| (at all, for a vertex) and by R m_s more, s
gets nothing, now and, as m_s is then 0, in all steps to come. Such labels are left out, and nothing changes.

*Softmax.* Labels that are nowhere likely become one: it has the sum of their x, and the unary energy with the
sum of their exponentials. It says to itself what the kernels give to it, y, where each of them would say its
own part: what it gets of a pixel, p, is wrong by up to |scale| y p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf import columns
from fwcrf.kernels.ops import differentiated
from fwcrf.moves import Move
from fwcrf.simplex import softmax

# Arrays large enough to pay for the search.
LARGE = 1 << 18
# What labels that are taken together may be wrong by, and what they may have by their unary alone: the
# largest shares of all added up, over the root of their number. With a network's scores 4 of 420 runs were
# wrong by more, and done again.
WRONG, SHARE = 5e-5, 0.0085
# R over the sum of the weights, as it is for normalized kernels.
USUAL = 1.25


class Reach(NamedTuple):
    """The most that the kernels gave to a pixel: R, and y p of the last label."""

    all: float
    last: float


def fewer(
    x: Tensor | None,
    unary: Tensor,
    weights: Sequence[Tensor],
    moves: Sequence[Move],
    *,
    exactly: bool,
    panel: int,
) -> LeftOut | Together | None:
    """The problem with fewer labels, if the moves from x allow for one that takes fewer panels of labels.

    If there is no x, from softmax(-unary). ``exactly`` where derivatives count too.
    """
    if not _may(unary, weights, moves, panel, exactly):
        return None
    usual = USUAL * sum(float(w.detach()) for w in weights)
    together = moves[0].oracle == "softmax"
    scale, near = moves[0].scale, max(_NEAR[m.oracle] / -m.scale for m in moves)
    n, labels = math.prod(unary.shape[:-1]), unary.shape[-1]
    # What matters to some pixels matters: a look at a part of them most often shows if there is no use.
    for some in (n // 8, n):
        gap, most = (
            t.double() for t in columns.spans(x if x is None else _first(x, some), _first(unary, some))
        )
        if together:
            share, order = torch.maximum(most, torch.exp(scale * gap)).sort()
            little = share.cumsum(0) <= SHARE * torch.arange(1, labels + 1).sqrt()
            left = labels - max(0, int(little.sum()) - 1)
        else:
            out = _left_out(gap, most, near, usual)
            left = int((~out).sum())
        if _panels(left, panel) == _panels(labels, panel):
            return None
    if not together:
        return LeftOut.of(x, unary, out, gap, most, near)
    # As many of them alone as there is room for.
    return Together.of(x, unary, order[labels - _panels(left, panel) * panel + 1 :].sort().values, scale)


def _first(t: Tensor, rows: int) -> Tensor:
    return t.detach().reshape(-1, t.shape[-1])[:rows]


# How far a label must be behind to get nothing, for a scale of 1.
_NEAR = {"project": 1.0, "vertex": 0.0, "softmax": math.inf}


def _may(unary: Tensor, weights: Sequence[Tensor], moves: Sequence[Move], panel: int, exactly: bool) -> bool:
    kinds = {m.oracle for m in moves}
    return (
        len(moves) > 2
        and unary.numel() >= LARGE
        and min(unary.shape[-1], unary.numel() // unary.shape[-1]) > panel
        and moves[0].step == 1
        and all(m.keep == 0 and m.scale < 0 and m.unary == 1 and not m.has_dual for m in moves)
        and all(w.dim() == 0 and float(w.detach()) >= 0 for w in weights)
        and (
            "softmax" not in kinds
            or (kinds == {"softmax"} and not exactly and unary.dtype == torch.float32 and _alike(moves))
        )
    )


def _panels(labels: int, panel: int) -> int:
    return -(-labels // panel)


def _alike(moves: Sequence[Move]) -> bool:
    return all(m.scale == moves[0].scale and m.step == 1 for m in moves)


def _left_out(gap: Tensor, most: Tensor, near: float, reach: float) -> Tensor:
    # A little more than enough, for rounding.
    return gap > (near + reach * most) * (1 + 1e-5)


@dataclass(frozen=True)
class LeftOut:
    """Where to start without labels that get nothing."""

    x: Tensor
    unary: Tensor
    kept: Tensor
    labels: int
    gap: Tensor  # of the labels that are not kept, as what follows
    most: Tensor
    near: float

    @staticmethod
    def of(x: Tensor | None, unary: Tensor, out: Tensor, gap: Tensor, most: Tensor, near: float) -> LeftOut:
        kept = (~out).nonzero().squeeze(-1)
        if x is None and not differentiated(unary):
            few, energies = columns.start(unary, kept)
        else:
            start = softmax(unary, -1.0) if x is None else x
            few, energies = columns.take(start, kept), columns.take(unary, kept)
        return LeftOut(few, energies, kept, unary.shape[-1], gap[out], most[out], near)

    def holds(self, reach: Reach) -> bool:
        """Whether moves with this reach end where those with all labels do."""
        # After the first move the labels that are kept have all of every pixel.
        return bool(_left_out(self.gap, self.most, self.near, reach.all).all())

    def all_labels(self, x: Tensor) -> Tensor:
        return columns.spread(x, self.kept, self.labels)


@dataclass(frozen=True)
class Together:
    """Where to start with one label, the last, for all that are nowhere likely."""

    x: Tensor | None
    unary: Tensor
    kept: Tensor
    all_unary: Tensor
    scale: float

    @staticmethod
    def of(x: Tensor | None, unary: Tensor, kept: Tensor, scale: float) -> Together:
        return Together(*columns.lump(x, unary, kept, scale), kept, unary, scale)

    def holds(self, reach: Reach) -> bool:
        """Whether moves with this reach end where those with all labels do."""
        return -self.scale * reach.last <= WRONG

    def all_labels(self, x: Tensor) -> Tensor:
        return columns.unlump(x, self.unary, self.all_unary, self.kept, self.scale)
