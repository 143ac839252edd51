"""Label pruning: solve with fewer labels, with the same result.

With Potts penalties and kernels that are not negative, a pixel gets messages only for labels that its
neighbours have: label s gains at most R m_s on every other label, with m_s the largest x of s at any pixel,
and R the largest sum of messages to a pixel over all labels.

*Projection and vertex.* If at every pixel another label leads s by more than R m_s + 1/|scale| (R m_s for a
vertex), s becomes 0, and stays 0 because m_s is then 0. Such labels are dropped: the result is the same.

*Softmax.* Labels that are unlikely at every pixel are merged into one: its x is the sum of their x, and its
exp(scale u) the sum of their exponentials. The merged label receives the whole message y where each label
should receive its share, so its probability p is off by at most |scale| y p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.engine.update import Map, Update
from fwcrf.torch_ops.native import differentiated, empty, threads_for
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import softmax

# Arrays of this many entries are large enough to pay for the search.
LARGE = 1 << 18
# The largest error of merged labels, and a limit on their share by the unary only: the sum of the largest
# share of each label, over the root of their number. With a network's scores 4 of 420 runs exceeded the
# error, and were repeated with all labels.
ERROR, SHARE = 5e-5, 0.0085
# A usual R for normalized kernels, relative to the sum of the weights.
USUAL = 1.25


class MessageBound(NamedTuple):
    """The largest message to a pixel: R over all labels, and y p of the last label."""

    all: float
    last: float


def prune(
    x: Tensor | None,
    unary: Tensor,
    weights: Sequence[Tensor],
    updates: Sequence[Update],
    *,
    exact: bool,
    lanes: int,
    row: Callable[[int], int],
) -> Dropped | Merged | None:
    """The problem with fewer labels; None if its rows would not be shorter.

    ``row`` returns the length of a row of labels in native code, whose vectors have ``lanes`` lanes.

    The run starts at x, or at softmax(-unary) if x is None. ``exact``, for gradients, merges no labels.
    """
    if not may_prune(unary, weights, updates, exact=exact, fewest=max(lanes, row(1) + 1)):
        return None
    usual = USUAL * sum(float(w.detach()) for w in weights)
    merging = updates[0].map == Map.SOFTMAX
    scale, near = updates[0].scale, max(_NEAR[u.map] / -u.scale for u in updates)
    n, labels = math.prod(unary.shape[:-1]), unary.shape[-1]
    # A label that one pixel needs must stay: an eighth of the pixels often shows that too many must.
    for rows in (n // 8, n):
        gap, most = (t.double() for t in spans(x if x is None else _first(x, rows), _first(unary, rows)))
        if merging:
            share, order = torch.maximum(most, torch.exp(scale * gap)).sort()
            count = torch.arange(1, labels + 1, dtype=torch.float32, device="cpu")
            little = share.cumsum(0) <= SHARE * count.sqrt()
            left = labels - max(0, int(little.sum()) - 1)
        else:
            out = _gets_nothing(gap, most, near, usual)
            left = int((~out).sum())
        if row(left) == row(labels):
            return None
    if not merging:
        return Dropped.of(x, unary, out, gap, most, near)
    # As many labels stay single as there is room for.
    return Merged.of(x, unary, order[labels - row(left) + 1 :].sort().values, scale)


def may_prune(
    unary: Tensor, weights: Sequence[Tensor], updates: Sequence[Update], *, exact: bool, fewest: int
) -> bool:
    """True if the updates allow for fewer labels, and the arrays are large enough for the search to pay.

    ``fewest`` labels and pixels are needed.
    """
    if len(updates) <= 2 or unary.numel() < LARGE:
        return False
    first, maps = updates[0], {u.map for u in updates}
    if min(unary.shape[-1], unary.numel() // unary.shape[-1]) < fewest or first.step != 1:
        return False
    if any(u.keep != 0 or u.scale >= 0 or u.unary != 1 or u.lean != 0 or u.dual for u in updates):
        return False
    if any(w.dim() != 0 or float(w.detach()) < 0 for w in weights):
        return False
    if Map.SOFTMAX not in maps:
        return True
    alike = all(u.scale == first.scale and u.step == 1 for u in updates)
    return maps == {Map.SOFTMAX} and alike and not exact and unary.dtype == torch.float32


# The lead of another label that makes a label 0, for a scale of 1.
_NEAR = {Map.PROJECT: 1.0, Map.VERTEX: 0.0, Map.SOFTMAX: math.inf}


def _gets_nothing(gap: Tensor, most: Tensor, near: float, bound: float) -> Tensor:
    # A little more than enough, for rounding.
    return gap > (near + bound * most) * (1 + 1e-5)


@dataclass(frozen=True)
class Dropped:
    """A problem without the labels that become 0."""

    x: Tensor
    unary: Tensor
    kept: Tensor
    labels: int
    gap: Tensor  # of the dropped labels, as ``most``
    most: Tensor
    near: float

    __repr__ = in_one_line

    @staticmethod
    def of(x: Tensor | None, unary: Tensor, out: Tensor, gap: Tensor, most: Tensor, near: float) -> Dropped:
        kept = (~out).nonzero().squeeze(-1)
        if x is None and not differentiated(unary):
            few, energies = start(unary, kept)
        else:
            point = softmax(unary, -1.0) if x is None else x
            few, energies = take(point, kept), take(unary, kept)
        return Dropped(few, energies, kept, unary.shape[-1], gap[out], most[out], near)

    def holds(self, bound: MessageBound) -> bool:
        """True if a run whose messages have this bound ends at the point of the run with all labels."""
        # After the first update the kept labels sum to 1 at every pixel.
        return bool(_gets_nothing(self.gap, self.most, self.near, bound.all).all())

    def all_labels(self, x: Tensor) -> Tensor:
        """x with all labels, 0 for the dropped ones."""
        return spread(x, self.kept, self.labels)


@dataclass(frozen=True)
class Merged:
    """A problem with one label, the last, for all labels that are unlikely at every pixel."""

    x: Tensor | None
    unary: Tensor
    kept: Tensor
    all_unary: Tensor
    scale: float

    __repr__ = in_one_line

    @staticmethod
    def of(x: Tensor | None, unary: Tensor, kept: Tensor, scale: float) -> Merged:
        return Merged(*merge(x, unary, kept, scale), kept, unary, scale)

    def holds(self, bound: MessageBound) -> bool:
        """True if a run whose messages have this bound ends near the point of the run with all labels."""
        return -self.scale * bound.last <= ERROR

    def all_labels(self, x: Tensor) -> Tensor:
        """x with all labels, each merged one with its share."""
        return unmerge(x, self.unary, self.all_unary, self.kept, self.scale)


# --- columns of labels -----------------------------------------------------------------------------


def spans(x: Tensor | None, unary: Tensor) -> tuple[Tensor, Tensor]:
    """Per label, over all rows: the smallest lead of the best label by unary, and the largest x.

    If x is None, the second is a bound on softmax(-unary): no entry is larger than exp(-lead).

    >>> spans(torch.tensor([[0.2, 0.8], [0.9, 0.1]]), torch.tensor([[1.0, 0.0], [2.0, 5.0]]))
    (tensor([0., 0.]), tensor([0.9000, 0.8000]))
    """
    gap, most = unary.new_empty(2, unary.shape[-1])
    _core.label_spans(None if x is None else _rows(x), _rows(unary), gap, most, _threads(unary))
    return gap, torch.exp(-gap) if x is None else most


def take(x: Tensor, which: Tensor) -> Tensor:
    """x[..., which], for different columns.

    >>> take(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([0, 2]))
    tensor([[1., 3.]])
    """
    return _Take.apply(x, which)  # type: ignore[return-value]


def spread(x: Tensor, which: Tensor, labels: int) -> Tensor:
    """The inverse of ``take``: an array with ``labels`` columns, 0 in the columns that are not in ``which``.

    >>> spread(torch.tensor([[1.0, 3.0]]), torch.tensor([0, 2]), 3)
    tensor([[1., 0., 3.]])
    """
    return _Spread.apply(x, which, labels)  # type: ignore[return-value]


def start(unary: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """The columns ``kept`` of softmax(-unary) and of unary."""
    few, energies = (empty((*unary.shape[:-1], len(kept)), unary.dtype) for _ in range(2))
    _core.merge_labels(None, _rows(unary), kept, 0.0, _rows(few), _rows(energies), _threads(unary))
    return few, energies


def merge(x: Tensor | None, unary: Tensor, kept: Tensor, scale: float) -> tuple[Tensor | None, Tensor]:
    """x and unary with the columns ``kept`` and a last one for all merged labels.

    There x is the sum of the merged x, and exp(scale unary) the sum of the exponentials. Returns no x if none
    was given and scale is -1: softmax(-unary) recreates it.
    """
    shape = (*unary.shape[:-1], len(kept) + 1)
    few = None if x is None and scale == -1 else empty(shape, unary.dtype)
    energies = empty(shape, unary.dtype)
    given, found = (None if t is None else _rows(t) for t in (x, few))
    _core.merge_labels(given, _rows(unary), kept, scale, found, _rows(energies), _threads(unary))
    return few, energies


def unmerge(few: Tensor, energies: Tensor, unary: Tensor, kept: Tensor, scale: float) -> Tensor:
    """The array with all columns of ``unary``: each merged label has its share of the last column."""
    out = empty(unary.shape, unary.dtype)
    _core.unmerge_labels(_rows(unary), kept, scale, _rows(few), _rows(energies), _rows(out), _threads(out))
    return out


class _Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, which: Tensor) -> Tensor:
        ctx.which, ctx.labels = which, x.shape[-1]
        out = empty((*x.shape[:-1], len(which)), x.dtype)
        _core.take_labels(_rows(x), which, _rows(out), _threads(x))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return spread(g, ctx.which, ctx.labels), None


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, which: Tensor, labels: int) -> Tensor:
        ctx.which = which
        out = empty((*x.shape[:-1], labels), x.dtype)
        _core.spread_labels(_rows(x), which, _rows(out), _threads(out))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return take(g, ctx.which), None, None


def _first(t: Tensor, rows: int) -> Tensor:
    return t.detach().reshape(-1, t.shape[-1])[:rows]


def _rows(x: Tensor) -> Tensor:
    return x.detach().contiguous().view(-1, x.shape[-1])


def _threads(x: Tensor) -> int:
    return threads_for(4 * x.numel())
