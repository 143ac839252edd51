"""Factors over three or more variables as pairwise costs: an auxiliary node has a label per joint labelling.

The node's labels are the labellings that the factor allows, with their energies as its unary. An edge to each
variable forbids all pairs of labels that disagree. Variables that are known or have one label are left out
first; a factor over at most two remaining variables needs no node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

# Most labellings of an auxiliary node: its edges have tables of so many columns.
MOST_LABELLINGS = 256


@dataclass
class Pairwise:
    """Costs of a model to which factors of any order are added."""

    sizes: np.ndarray  # (n,)
    known: Mapping[int, int]
    constant: float = 0.0
    unary: list[tuple[int, np.ndarray]] = field(default_factory=list)
    pairs: list[tuple[int, int, np.ndarray]] = field(
        default_factory=list
    )  # of nodes, auxiliary ones from n on
    auxiliary: list[np.ndarray] = field(default_factory=list)  # the energies of each auxiliary node

    def labellings(self, variables: tuple[int, ...]) -> int:
        """The number of joint labellings of the variables whose label is not known."""
        count = 1
        for v in variables:
            count *= 1 if v in self.known else int(self.sizes[v])
            if count > 1 << 40:
                break
        return count

    def add(self, variables: tuple[int, ...], energies: np.ndarray) -> None:
        """Add a factor; ``energies`` has an axis per variable, with +inf for forbidden labellings."""
        open_ = [v for v in variables if v not in self.known and self.sizes[v] > 1]
        costs = energies[tuple(self.known.get(v, 0) if v not in open_ else slice(None) for v in variables)]
        if not np.isfinite(costs).any():
            raise ValueError("forbids all labellings")
        if len(open_) == 0:
            self.constant += float(costs)
        elif len(open_) == 1:
            self.unary.append((open_[0], costs))
        elif len(open_) == 2:
            self.pairs.append((open_[0], open_[1], costs))
        else:
            allowed = np.argwhere(np.isfinite(costs))
            node = len(self.sizes) + len(self.auxiliary)
            self.auxiliary.append(costs[tuple(allowed.T)])
            for axis, v in enumerate(open_):
                agree = np.arange(self.sizes[v])[:, None] == allowed[:, axis]
                self.pairs.append((v, node, np.where(agree, 0.0, np.inf)))
