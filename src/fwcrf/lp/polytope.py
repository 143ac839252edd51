"""The local polytope as the feasible set of Frank-Wolfe: its oracle is a linear program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.lp.forest import best_labels
from fwcrf.lp.highs import Program
from fwcrf.lp.messages import Messages
from fwcrf.lp.relaxation import Relaxation
from fwcrf.lp.traversal import Traversal, traverse
from fwcrf.torch_ops.native import kept_property
from fwcrf.torch_ops.printed import in_one_line

# Most variables of a linear program that HiGHS takes unless asked: about a second.
_MOST = 20_000


class Answer(NamedTuple):
    x: Tensor  # argmin of <c, x>
    least: Tensor  # (*batch,): lower bound on the minimum

    __repr__ = in_one_line


@dataclass(frozen=True, eq=False)
class LocalPolytope:
    """All x >= 0 whose rows sum to 1 and are consistent, A x = 0.

    The oracle is dynamic programming if the graph is a forest. Otherwise it is HiGHS ("program"), or
    ``passes`` of TRW-S ("messages"), which finds a vertex that is a labelling, near the minimum, and a bound.
    None is HiGHS up to 20,000 variables of the program.
    """

    relaxation: Relaxation
    oracle: str | None = None
    passes: int = 30
    quadratic = True
    _last: list[tuple[Tensor, Answer]] = field(default_factory=list)

    __repr__ = in_one_line

    @property
    def strong_convexity(self) -> float:
        return 0.0

    def argmin(self, c: Tensor) -> Tensor:
        return self.solve(c).x

    @torch.no_grad()
    def solve(self, c: Tensor) -> Answer:
        """argmin <c, x>, and a lower bound on the minimum that accounts for rounding."""
        # A trace and the step from the same point call it with the same c.
        if self._last and torch.equal(self._last[0][0], c):
            return self._last[0][1]
        E = self.relaxation
        if self.is_forest:
            labels, y = best_labels(self.graph, E.nodes(c), E.pairs(c))
            x = torch.nn.functional.one_hot(E.rows(labels), c.shape[-1]).to(c)
        elif not self.is_exact:
            found = [self._messages.solve(one, self.passes) for one in c.reshape(-1, *c.shape[-2:])]
            labels = torch.stack([of for of, _ in found]).view(*c.shape[:-2], -1).to(c.device)
            x = torch.nn.functional.one_hot(E.rows(labels), c.shape[-1]).to(c)
            least = torch.tensor([bound for _, bound in found], dtype=torch.float64, device=c.device)
            self._last[:] = [(c, Answer(x, least.view(c.shape[:-2])))]
            return self._last[0][1]
        else:
            flat = c.reshape(-1, *c.shape[-2:])
            found = [program.solve(one) for program, one in zip(self._programs, flat, strict=True)]
            x, y = (torch.stack(parts) for parts in zip(*found, strict=True))
            x, y = x.reshape(c.shape), y.reshape(*c.shape[:-2], *y.shape[-3:])
        answer = Answer(x, E.bound(c, y))
        self._last[:] = [(c, answer)]
        return answer

    def value(self, x: Tensor) -> Tensor:
        return x.new_zeros(x.shape[:-2], dtype=torch.float64)

    def grad(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def curvature(self, d: Tensor) -> Tensor:
        return self.value(d)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        return 0.0, 0.0

    @kept_property
    def graph(self) -> Traversal:
        return traverse(self.relaxation.num_nodes, self.relaxation.edges)

    @property
    def is_forest(self) -> bool:
        return len(self.relaxation.edges) < self.relaxation.num_nodes and self.graph.is_forest

    @property
    def is_exact(self) -> bool:
        """True if the oracle finds the minimum, not a vertex near it."""
        if self.is_forest or self.oracle == "program":
            return True
        E = self.relaxation
        return self.oracle is None and E.num_nodes * E.num_labels + len(E.edges) * E.num_labels**2 <= _MOST

    @kept_property
    def _messages(self) -> Messages:
        return Messages(self.relaxation)

    @kept_property
    def _programs(self) -> list[Program]:
        theta = self.relaxation.unary
        return [Program(self.relaxation, one) for one in theta.reshape(-1, *theta.shape[-2:])]
