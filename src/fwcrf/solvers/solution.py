"""The result of ``minimize``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fwcrf.energy import Energy
from fwcrf.solvers.trace import Record


@dataclass(frozen=True, eq=False)
class Solution:
    """The last point of a solver, and the labels rounded from it.

    Labels and their energy are computed on first access: training needs the probabilities only, and
    an energy is one more application of P.
    """

    probabilities: Tensor  # (*batch, n, L), attached to the graph if gradients are on
    objective: Energy
    rounding: Callable[[Energy, Tensor], Tensor]
    trace: list[Record] | None = None  # one record per iterate, the start included
    converged: bool = False  # S(x) came below ``tol`` for every image
    engine: str = field(default="", kw_only=True)  # the path that ran, and why if it was the generic one

    @cached_property
    def labels(self) -> Tensor:
        """``(*batch, n)``."""
        with torch.no_grad():
            return self.rounding(self.objective, self.probabilities.detach())

    @cached_property
    def energy(self) -> Tensor:
        """E of the labels, one per image, ``(*batch,)`` in float64."""
        with torch.no_grad():
            return self.objective.of_labels(self.labels)
