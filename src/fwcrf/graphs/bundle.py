"""Proximal bundle steps on the dual of the linear relaxation, with chains solved by dynamic programming."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fwcrf.graphs.chains import ChainOracle
from fwcrf.torch_ops.printed import in_one_line

# Pairwise Frank-Wolfe steps on the weights of the planes for one plane more, at most: fewer with many copies,
# where a step takes as long as a good part of the dynamic programs.
_INNER, _LEAST, _WORK = 500, 40, 400_000
# The share of the promised rise that moves the centre.
_SERIOUS = 0.1


@dataclass(eq=False)
class Bundle:
    """Shares of the unaries among copies, planes of each chain, and the best bound."""

    oracle: ChainOracle
    unary: Tensor  # (n, L)
    centre: Tensor  # (copies, L): the shares u, which sum to the unary over the copies of a node
    prox: float  # c: the larger, the further a step goes
    most: int  # planes per chain
    labels: Tensor = field(init=False)  # (planes, copies)
    costs: Tensor = field(init=False)  # (planes, chains): of the edges
    weights: Tensor = field(init=False)  # (planes, chains), of sum 1
    value: float = field(init=False)  # the bound at the centre
    bound: float = field(init=False)  # the best bound, rounding errors subtracted
    waited: int = 0  # steps since the centre moved

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        labels = self.oracle(self.centre)
        self.labels = labels.unsqueeze(0)
        self.costs = self.oracle.costs(labels).unsqueeze(0)
        self.weights = torch.ones_like(self.costs)
        self.value = float(self._lines(self.centre).sum())
        self.bound = self.value - self._error(self.centre)

    @property
    def points(self) -> Tensor:
        """The points y of the chains, ``(copies, L)``: the weighted means of the planes' labellings."""
        each = self.weights[:, self.oracle.found.chain]
        y = torch.zeros_like(self.centre)
        for labels, weight in zip(self.labels, each, strict=True):
            y.scatter_add_(-1, labels.unsqueeze(-1), weight.unsqueeze(-1))
        return y

    def mean(self, y: Tensor) -> Tensor:
        """The mean of copies ``(copies, L)`` at each node, ``(n, L)``."""
        found = self.oracle.found
        total = y.new_zeros(len(found.copies), y.shape[-1]).index_add(0, found.node, y)
        return total / found.copies.unsqueeze(-1)

    def step(self) -> float:
        """One plane more for each chain. Returns the rise that the planes promised before."""
        moved = self.centre + self._movement()
        promised = float(self._lines(moved).amin(0).sum()) - self.value
        labels = self.oracle(moved)
        costs = self.oracle.costs(labels)
        value = float((costs + self._along(moved, labels)).sum())
        self.bound = max(self.bound, value - self._error(moved))
        rise = value - self.value
        if rise >= _SERIOUS * promised and rise > 0:
            self.prox *= 1.5 if rise >= 0.5 * promised else 1.0
            self.centre, self.value, self.waited = moved, value, 0
        else:
            self.waited += 1
            self.prox *= 0.5 if rise < -promised else 0.7 if self.waited % 4 == 0 else 1.0
        self._add(labels, costs)
        return promised

    def _movement(self) -> Tensor:
        """l = c (y - mean of y over copies), at nearly the best weights of the planes."""
        found, (most, _) = self.oracle.found, self.weights.shape
        y = self.points
        number = torch.arange(self.weights.shape[1], device=y.device)
        steps = max(_LEAST, min(_INNER, _WORK // len(y)))
        for _ in range(steps if most > 1 else 0):
            lines = self._lines(self.centre + self.prox * (y - self.mean(y)[found.node]))
            best, low = lines.argmin(0), lines.amin(0)
            used = self.weights > 0
            worst = lines.masked_fill(~used, -torch.inf).argmax(0)
            gap = float((self.weights * lines).sum() - low.sum())
            if gap <= 0.1 * max(float(low.sum()) - self.value, 1e-12 * abs(self.value)):
                break
            ahead, behind = (
                self.labels.gather(0, k[found.chain].unsqueeze(0)).squeeze(0) for k in (best, worst)
            )
            # Copies of a node are coupled, but |y - mean|^2 is at most |y|^2: chains may move together.
            curvature = 2 * self.prox * self.oracle.sums((ahead != behind).double())
            slope = lines[worst, number] - low
            limit = self.weights[worst, number]
            a = torch.where(curvature > 0, slope / curvature.clamp(min=1e-300), torch.inf)
            a = torch.minimum(a, limit).masked_fill(best == worst, 0.0)
            self.weights[worst, number] -= a
            self.weights[best, number] += a
            each = a[found.chain].unsqueeze(-1)
            y.scatter_add_(-1, ahead.unsqueeze(-1), each).scatter_add_(-1, behind.unsqueeze(-1), -each)
        return self.prox * (y - self.mean(y)[found.node])

    def _lines(self, shares: Tensor) -> Tensor:
        """The energies of all planes at these shares, ``(planes, chains)``."""
        return self.costs + torch.stack([self._along(shares, labels) for labels in self.labels])

    def _along(self, shares: Tensor, labels: Tensor) -> Tensor:
        return self.oracle.sums(shares.gather(-1, labels.unsqueeze(-1)).squeeze(-1))

    def _add(self, labels: Tensor, costs: Tensor) -> None:
        """Add a plane per chain, in place of its lightest if there are too many."""
        found = self.oracle.found
        if len(self.labels) < self.most:
            self.labels = torch.cat([self.labels, labels.unsqueeze(0)])
            self.costs = torch.cat([self.costs, costs.unsqueeze(0)])
            self.weights = torch.cat([self.weights, torch.zeros_like(costs).unsqueeze(0)])
            return
        lightest = self.weights.argmin(0, keepdim=True)
        self.weights.scatter_(0, lightest, 0.0)
        self.weights /= self.weights.sum(0, keepdim=True)
        self.costs.scatter_(0, lightest, costs.unsqueeze(0))
        self.labels.scatter_(0, lightest[:, found.chain], labels.unsqueeze(0))

    def _error(self, shares: Tensor) -> float:
        """What shares that miss the unary and rounded sums can have added to the bound."""
        finite = self.unary < torch.inf
        found = self.oracle.found
        known = shares.masked_fill(shares == torch.inf, 0.0)
        total = torch.zeros_like(self.unary).index_add(0, found.node, known)
        missed = (total - self.unary).masked_fill(~finite, -torch.inf).amax(-1).clamp(min=0).sum()
        sizes = known.abs().amax(-1).sum() + self.costs.abs().sum()
        return float(missed) + 8 * torch.finfo(shares.dtype).eps * float(sizes)


def shares(oracle: ChainOracle, unary: Tensor, forward: Tensor, backward: Tensor) -> Tensor:
    """The shares ``(copies, L)`` with which the chains' minima sum to TRW-S's last bound, or to more.

    ``forward`` and ``backward`` are the messages ``(m, L)`` of the last two passes, to the later and to the
    earlier node of each edge. With h = unary + all messages to a node of k chains, the later node of an edge
    has sent h / k - forward: the edge's chain owns that, without the message that it became. What a node has
    not sent is not negative; its copies share it.
    """
    found = oracle.found
    i, j = found.edges.unbind(-1)
    rising = found.node[i] < found.node[j]
    lower, upper = torch.where(rising, i, j), torch.where(rising, j, i)
    forbidden = unary == torch.inf
    h = unary.masked_fill(forbidden, 0.0)
    h = h.index_add(0, found.node[lower], backward).index_add(0, found.node[upper], forward)
    part = h / found.copies.unsqueeze(-1)
    sent = part[found.node[upper]] - forward
    earlier = torch.bincount(found.node[upper], minlength=len(unary)).to(h)
    kept = part * (1 - earlier / found.copies).unsqueeze(-1)
    u = kept[found.node].index_add(0, upper, sent).index_add(0, lower, -backward)
    return u.masked_fill(forbidden[found.node], torch.inf)
