"""The model of the inference experiments: Potts with a spatial and a bilateral kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fwcrf import pairwise
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.experiments.images import Picture
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.operator import Operator
from fwcrf.simplex import softmax


@dataclass(frozen=True)
class Potts:
    """``weight`` is the penalty for different labels; bandwidths are in pixels and grey levels."""

    weight: float = 1.0
    spatial: float = 3.0
    bilateral: tuple[float, float] = (80.0, 13.0)

    def problem(self, picture: Picture, every: int = 1) -> Problem:
        """Of a picture of which every so many pixels are left: distances shrink with it."""
        xy, color = self.bilateral
        kernels = [Spatial(self.spatial / every), Bilateral(xy / every, color)]
        unary = unary_from_logits(picture.logits.flatten(1).T.contiguous())
        return Problem([kernel.operator(picture.image) for kernel in kernels], self.weight, unary)

    def __str__(self) -> str:
        xy, color = self.bilateral
        return f"weight {self.weight:g}, spatial {self.spatial:g} px, bilateral {xy:g} px / {color:g} levels"


@dataclass(frozen=True, eq=False)
class Problem:
    """The energy of an image, and that of labellings, of which most use few of the labels."""

    operators: Sequence[Operator]
    weight: float
    unary: Tensor  # (n, L)
    _pairwise: dict[int, pairwise.Pairwise] = field(default_factory=dict)

    def energy(self) -> Energy:
        return Energy(self._of(self.unary.shape[-1]), self.unary)

    @cached_property
    def straight(self) -> Tensor:
        """The labels of the lowest first gradient, ``(n,)``: where every full first step leads."""
        return self.energy().grad(softmax(self.unary, -1.0)).argmin(-1)

    def of_labels(self, labels: Tensor) -> float:
        """E of the labels ``(n,)``: in a Potts model, labels that do not occur do not matter."""
        used = torch.bincount(labels, minlength=self.unary.shape[-1]).nonzero().flatten()
        renamed = torch.zeros(self.unary.shape[-1], dtype=torch.int64)
        renamed[used] = torch.arange(len(used))
        return float(Energy(self._of(len(used)), self.unary[:, used]).of_labels(renamed[labels]))

    def _of(self, num_labels: int) -> pairwise.Pairwise:
        if num_labels not in self._pairwise:
            self._pairwise[num_labels] = pairwise.dense(self.operators, num_labels, compat=self.weight)
        return self._pairwise[num_labels]


PAPER = Potts()
