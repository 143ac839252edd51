"""The result of ``minimize``."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fwcrf.certificates import quick_bound
from fwcrf.energy import Energy
from fwcrf.solvers.trace import Record
from fwcrf.torch_ops.native import has_values, kept_property
from fwcrf.torch_ops.printed import with_attributes

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class Solution:
    """The last point of a solver, and the labels rounded from it.

    Labels and their energy are computed on first access: training needs the probabilities only, and
    an energy is one more application of P. A solution can be pickled, saved by ``torch.save`` and copied; the
    graph of its probabilities stays behind.
    """

    probabilities: Tensor  # (*batch, n, L), attached to the graph if gradients are on
    objective: Energy
    rounding: Callable[[Energy, Tensor], Tensor]
    trace: list[Record] | None = None  # one record per iterate, the start included
    converged: bool = False  # S(x) came below ``tol`` for every image
    engine: str = field(default="", kw_only=True)  # the path that ran, and why if it was the generic one

    def __repr__(self) -> str:
        path = f"\n  engine: {self.engine}" if self.engine else ""
        return with_attributes(self, self._printed) + path

    @property
    def _printed(self) -> tuple[str, ...]:
        """The attributes that are printed; the energy is computed for it, unless its value cannot be read."""
        energy = ("energy",) if has_values(self.probabilities) else ()
        return ("probabilities", *energy, "converged", "trace")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy without the graph, as from a pickle: torch copies no tensor inside a graph."""
        return pickle.loads(pickle.dumps(self))

    @kept_property
    def labels(self) -> Tensor:
        """``(*batch, n)``."""
        with torch.no_grad():
            return self.rounding(self.objective, self.probabilities.detach())

    @kept_property
    def energy(self) -> Tensor:
        """E of the labels, one per image, ``(*batch,)`` in float64."""
        with torch.no_grad():
            return self.objective.of_labels(self.labels)

    @kept_property
    def bound(self) -> Tensor | None:
        """No labelling has a lower energy, ``(*batch,)`` in float64; None if no bound is known.

        Of dense models without self-edges, in the time of a few applications of P on first access:
        ``fwcrf.certificate`` takes longer and is tighter.
        """
        with torch.no_grad():
            return quick_bound(self.objective.below)
