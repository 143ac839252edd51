"""The best labels that a time allows: exact where the model permits it, else bounds and moves in turn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.runtime import max_threads
from fwcrf.torch_ops.printed import in_one_line

# A gap up to this part of the size of the energy, or of typical costs, counts as closed.
PROOF = 1e-9
# Elimination is tried up to this many entries of a table and of all tables: a few tenths of a second.
_TABLE, _TABLES = 2.0**18, 6e7
# Beyond this many nodes, with cycles, even the order of elimination takes long.
_NODES = 5000
_FAR = 1e9  # seconds: no limit
# Branch and bound: most entries of all tables, most nodes, and visits times labels of the two attempts.
_BRANCH_TABLES, _BRANCH_NODES, _FIRST_WORK, _LAST_WORK = 2e6, 600, 5e6, 2e8
# A larger gap is not closed by branch and bound, except on a few nodes.
_BRANCH_GAP, _FEW_NODES = 0.1, 60
_REPAIRS = 200_000  # moves
_NARROW, _WIDE = 2.0**12, 2.0**14  # most entries of a table of an exact ball
# Rounds without a gain after which a search ends: this many, more on small graphs, and a part of all rounds.
_PATIENCE, _NODES_WAITED_FOR, _MORE_PATIENCE = 12, 20_000, 0.3
# Up to this many nodes a new start often ends at the optimum by itself.
_NODES_STARTED_ANEW = 1000
_LOW_DEGREE = 8  # neighbours per node: elimination of a ball is cheap


class Progress(NamedTuple):
    """The state of a search, for a user's callback."""

    seconds: float
    energy: float
    bound: float  # -inf as long as none is known
    method: str


@dataclass(repr=False)
class Search:
    """Labels of one image, improved by native methods until they are proven or the time is over."""

    model: _core.GraphModel
    unary: Tensor  # (n, L), float64
    edges: int
    seconds: float
    constant: float = 0.0
    seed: int = 0
    report: Callable[[Progress], None] | None = None
    forbidden: Tensor | None = None  # (m or 1, L, L), uint8: pairs of labels
    size: float = 0.0  # of typical costs
    labels: Tensor = field(init=False)  # the best so far
    energy: float = field(init=False)  # of the labels, with finite costs and without the constant
    bound: float = -math.inf
    proven: bool = False
    exact: bool = False  # proven by a method whose bound differs from the energy by rounding only
    ending: str = ""  # the method that proved the labels, or the reason of the end
    _start: float = field(default_factory=perf_counter)
    _trial: Tensor | None = None  # labels that a native method changes in place; valid at any time

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        self.labels = self.unary.argmin(-1)
        self.energy = self.model.energy(self.labels)

    @property
    def elapsed(self) -> float:
        return perf_counter() - self._start

    @property
    def left(self) -> float:
        return max(self.seconds - self.elapsed, 0.0)

    @property
    def tolerance(self) -> float:
        return 0.5 * PROOF * max(self.size, abs(self.energy))  # a half: energies are summed in two ways

    @property
    def degree(self) -> float:
        return 2 * self.edges / len(self.unary)

    @property
    def starts_anew(self) -> bool:
        """Whether a new start often ends at the optimum: every round has one, with wide balls."""
        return self.degree <= _LOW_DEGREE and len(self.unary) <= _NODES_STARTED_ANEW

    def trial(self) -> Tensor:
        """A copy of the labels for a method to change. An interrupt keeps the changes that it has made."""
        self._trial = self.labels.clone()
        return self._trial

    def finish(self, ending: str) -> None:
        """End with the better ones of the labels and the last trial, after a quick descent."""
        self.ending = ending
        if self._trial is not None:
            self.take(self._trial, "an unfinished method")
        labels = self.labels.clone()
        self.model.kick(0, 0, _FAR, labels)
        self.take(labels, "descent")

    def take(self, labels: Tensor, method: str) -> bool:
        """Keep the labels if they are better; True if so."""
        energy = self.model.energy(labels)
        better = energy < self.energy
        if better:
            self.labels, self.energy = labels.clone(), energy
            self._tell(method)
        self._check(method)
        return better

    def raise_bound(self, bound: float, method: str) -> None:
        if bound > self.bound:
            self.bound = bound
            self._tell(method)
        self._check(method)

    def prove(self, value: float, labels: Tensor, method: str) -> None:
        """Take the labels of an exact method, whose energy ``value`` is."""
        self.labels, self.energy = labels, self.model.energy(labels)
        self.bound, self.ending = min(value, self.energy), method
        self.proven = self.exact = True
        self._tell(method)

    def _check(self, method: str) -> None:
        if not self.proven and self.energy - self.bound <= self.tolerance:
            self.proven, self.ending = True, f"{method} closed the gap"

    def _tell(self, method: str) -> None:
        if self.report is not None:
            self.report(
                Progress(self.elapsed, self.energy + self.constant, self.bound + self.constant, method)
            )


def search(s: Search) -> Search:
    """Run all methods. An interrupt ends the search with the best labels so far."""
    try:
        exactly(s)
        if not s.proven:
            allowed(s, s.seed)
        if not s.proven:
            messages(s)
        if not s.proven:
            branches(s, _FIRST_WORK)
        if not s.proven:
            moves(s)
        if not s.proven and s.left > 0:
            branches(s, _LAST_WORK)
        if not s.proven and s.left <= 0:
            s.finish("the time was over")
    except KeyboardInterrupt:
        s.finish("interrupted")
    return s


def exactly(s: Search) -> None:
    """Cuts, dynamic programming and elimination, where they take little time."""
    n, num_labels = s.unary.shape
    labels = s.trial()
    value = s.model.cut(s.left, labels)
    if value is not None and not math.isnan(value):
        return s.prove(value, labels, "maximum flow")
    # Tables over one node each are dynamic programming on a forest, of any size.
    limits = [(float(num_labels), math.inf, "dynamic programming")] if s.edges < n else []
    if n <= _NODES or s.edges < 1.2 * n:
        limits.append((_TABLE, _TABLES, "elimination"))
    for most, total, name in limits:
        value = s.model.eliminate(most, total, s.left, labels)
        if value is not None and not math.isnan(value):
            return s.prove(value, labels, name)


def allowed(s: Search, seed: int) -> None:
    """Labels without a forbidden pair, if the model has such pairs and a repair finds labels without them."""
    if s.forbidden is None or s.model.repair(s.forbidden, 0, 0, _FAR, s.labels.clone()) == 0:
        return
    labels = s.trial()
    s.model.repair(s.forbidden, _REPAIRS, seed % 2**64, s.left, labels)
    s.take(labels, "repair")


def branches(s: Search, work: float) -> None:
    """Branch and bound over the whole model, if it is small and its gap is too."""
    n, num_labels = s.unary.shape
    entries = s.edges * num_labels**2
    gap = (s.energy - s.bound) / max(s.size, abs(s.energy), 1e-300)
    hopeless = gap > _BRANCH_GAP and n > _FEW_NODES and s.forbidden is None
    if entries > _BRANCH_TABLES or n > _BRANCH_NODES or hopeless:
        return
    labels = s.trial()
    sweeps = int(min(100, work / (entries + 1) + 1))
    margin = 0.5 * s.tolerance
    complete, error = s.model.branch(sweeps, int(work / (n * num_labels)), margin, s.left, labels)
    s.take(labels, "branch and bound")
    if complete:
        s.raise_bound(s.energy - margin - error, "branch and bound")


def messages(s: Search) -> None:
    """TRW-S until the gap is closed or the bound hardly rises, in at most half of the time."""
    end = s.elapsed + 0.5 * s.left
    sent = torch.zeros(s.edges, s.unary.shape[1], dtype=torch.float64, device="cpu")
    bounds = torch.empty(10, dtype=torch.float64, device="cpu")
    labels = s.trial()
    while not s.proven and s.elapsed < end:
        before = s.bound
        steps, _, bound, _ = s.model.trws(
            sent, 10, end - s.elapsed, s.tolerance, labels, bounds, max_threads()
        )
        s.take(labels, "TRW-S")
        s.raise_bound(bound, "TRW-S")
        if steps == 10 and s.bound - before < 0.01 * (s.energy - s.bound):
            break


def moves(s: Search) -> None:
    """Kicks, exact balls, expansions and annealed starts in turn, until nothing gains or the time is over."""
    n, num_labels = s.unary.shape
    in_turn: list[Callable[[Search, int], None]] = [_kicks]
    if num_labels > 2:
        in_turn.append(_expansion)
    if s.degree <= _LOW_DEGREE:
        in_turn.append(_balls)
    if s.degree > _LOW_DEGREE or s.forbidden is not None:
        in_turn.append(_patches)
    if s.forbidden is not None:
        in_turn.append(_renewals)
    in_turn.append(_anneal)
    rest = [0] * len(in_turn)  # rounds for which a move without a gain waits
    wait = [1] * len(in_turn)
    idle = rounds = 0
    longest, most = (1, 20) if s.starts_anew else (2, 50)
    patience = _PATIENCE + min(_NODES_WAITED_FOR // n, most)
    while s.left > 0 and not s.proven and idle < patience + _MORE_PATIENCE * rounds:
        before = s.energy
        if rounds > 0:
            allowed(s, _seed(s, rounds, 7))
        for k, move in enumerate(in_turn):
            if rest[k] > 0:
                rest[k] -= 1
                continue
            was = s.energy
            move(s, rounds)
            if s.proven or s.left <= 0:
                break
            wait[k] = 1 if s.energy < was else min(2 * wait[k], longest if move is _anneal else 4)
            rest[k] = wait[k] - 1
        rounds += 1
        idle = 0 if s.energy < before else idle + 1
    if not s.proven:
        s.ending = "nothing gained"


def _kicks(s: Search, k: int) -> None:
    labels = s.trial()
    s.model.kick(2, _seed(s, k, 1), s.left, labels)
    s.take(labels, "kicks")


def _expansion(s: Search, k: int) -> None:
    labels = s.trial()
    s.model.expand(2, s.left, labels)
    s.take(labels, "expansion")


def _balls(s: Search, k: int) -> None:
    labels = s.trial()
    _exact_balls(s, labels, *_narrow_or_wide(len(labels), k), _seed(s, k, 2))
    s.take(labels, "exact balls")


def _narrow_or_wide(n: int, k: int) -> tuple[int, float]:
    """Count and width of exact balls: wide ones in every second round, and half as many."""
    return (n // 20, _NARROW) if k % 2 == 0 else (n // 40, _WIDE)


def _exact_balls(s: Search, labels: Tensor, count: int, entries: float, seed: int) -> None:
    """Exact balls in place, 4 to 64."""
    s.model.balls(min(max(count, 4), 64), 200, entries, seed, s.left, labels)


def _patches(s: Search, k: int) -> None:
    labels = s.trial()
    nodes = (8, 12, 20)[k % 3]
    s.model.patches(
        max(4, min(len(labels), 400) // nodes), nodes, 500 * (1 + k % 3), _seed(s, k, 6), s.left, labels
    )
    s.take(labels, "exact patches")


def _renewals(s: Search, k: int) -> None:
    """Cheap labels for up to a third of the nodes, repair, descent, and the better parts of that."""
    assert s.forbidden is not None
    generator = torch.Generator().manual_seed(_seed(s, k, 9))
    draw = partial(torch.rand, generator=generator, dtype=torch.float64)
    spread = 0.5 * s.unary.masked_fill(torch.isinf(s.unary), 0.0).std()
    for of in range(30):
        if s.left <= 0:
            return
        labels = s.labels.clone()
        chosen = draw(len(labels)) < 0.33 * draw(1)
        labels[chosen] = (s.unary[chosen] + spread * draw(int(chosen.sum()), s.unary.shape[1])).argmin(-1)
        seed = _seed(s, k, 10) + of
        s.model.repair(s.forbidden, _REPAIRS // 10, seed, s.left, labels)
        s.model.kick(1, seed, s.left, labels)
        s.model.patches(8, 12, 500, seed, s.left, labels)
        mixed = s.labels.clone()
        s.model.take_better_parts(labels, mixed)
        s.take(mixed, "renewals")


def _anneal(s: Search, k: int) -> None:
    """Labels of a new random start, and the parts of them that are better."""
    n = len(s.unary)
    labels = annealed(s.model, s.unary, 20 if s.starts_anew else 50, _seed(s, k, 3), s.left)
    if s.forbidden is not None:
        s.model.repair(s.forbidden, _REPAIRS // 10, _seed(s, k, 8), s.left, labels)
    if s.starts_anew:
        _exact_balls(s, labels, n // 20, _WIDE, _seed(s, k, 4))
    elif s.degree <= _LOW_DEGREE:
        _exact_balls(s, labels, *_narrow_or_wide(n, k), _seed(s, k, 4))
    s.model.kick(1, _seed(s, k, 5), s.left, labels)
    mixed = s.labels.clone()
    s.model.take_better_parts(labels, mixed)
    if s.starts_anew:
        _exact_balls(s, mixed, n // 80, _WIDE, _seed(s, k, 11))
    s.take(mixed, "annealed mean field")


def annealed(model: _core.GraphModel, unary: Tensor, sweeps: int, seed: int, seconds: float = _FAR) -> Tensor:
    """Labels after sweeps of mean field, one node at a time, whose temperature falls to nearly 0."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    x = torch.rand(unary.shape, generator=generator, dtype=torch.float64, device="cpu")
    x = x.masked_fill(unary == torch.inf, 0.0)
    x = x / x.sum(-1, keepdim=True)
    scale = model.typical_cost()
    weights = torch.linspace(3.0 * scale, 0.1 * scale, sweeps, dtype=torch.float64, device="cpu")
    model.sweep(weights, torch.ones_like(weights), seconds, x)
    return x.argmax(-1)


def _seed(s: Search, k: int, part: int) -> int:
    return (s.seed * 1_000_003 + 100 * k + part) % 2**63
