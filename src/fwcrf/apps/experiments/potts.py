"""The model of the inference experiments: Potts with a spatial and a bilateral kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fwcrf import pairwise
from fwcrf.apps.experiments.images import Picture
from fwcrf.energy import Energy, unary_from_logits
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.kernels.operator import Operator
from fwcrf.torch_ops.printed import in_one_line
from fwcrf.torch_ops.simplex import softmax


@dataclass(frozen=True)
class Potts:
    """``weight`` is the penalty for different labels; bandwidths are in pixels and grey levels."""

    weight: float = 1.0
    spatial: float = 3.0
    bilateral: tuple[float, float] = (80.0, 13.0)

    @property
    def kernels(self) -> tuple[float, tuple[float, float]]:
        return self.spatial, self.bilateral

    def problem(self, picture: Picture, every: int = 1) -> Problem:
        """The problem of a picture that is subsampled by ``every``: spatial bandwidths shrink likewise."""
        xy, color = self.bilateral
        kernels = [Spatial(self.spatial / every), Bilateral(xy / every, color)]
        unary = unary_from_logits(picture.logits.flatten(1).T.contiguous())
        return Problem([kernel.operator(picture.image) for kernel in kernels], self.weight, unary)

    def __str__(self) -> str:
        xy, color = self.bilateral
        return f"weight {self.weight:g}, spatial {self.spatial:g} px, bilateral {xy:g} px / {color:g} levels"


@dataclass(frozen=True, eq=False)
class Problem:
    """The energy of an image, as a function of points or of labellings."""

    operators: Sequence[Operator]
    weight: float
    unary: Tensor  # (n, L)
    _sums: dict[int, pairwise.Pairwise] = field(default_factory=dict)

    __repr__ = in_one_line

    def energy(self) -> Energy:
        return Energy(self._pairwise, self.unary)

    @cached_property
    def straight(self) -> Tensor:
        """Labels ``(n,)``, the argmin of the first gradient: the result of every solver's full first step."""
        return self.energy().grad(softmax(self.unary, -1.0)).argmin(-1)

    def weighted(self, weight: float) -> Problem:
        """The problem with the same kernels and another weight."""
        return Problem(self.operators, weight, self.unary, self._sums)

    def of_labels(self, labellings: Sequence[Tensor]) -> list[float]:
        """E of each labelling ``(n,)``. One filtering pass takes several labellings.

        The sum over pairs with different labels is the sum over all pairs minus the pairs with equal
        labels. The columns of a pass are the indicators of the labels that occur in its labellings.
        """
        found, together = [], []
        for labels in labellings:
            used = torch.bincount(labels, minlength=self.unary.shape[-1]).nonzero().flatten()
            if together and sum(len(u) for _, u in together) + len(used) > _COLUMNS:
                found += self._together(together)
                together = []
            together.append((labels, used))
        return found + (self._together(together) if together else [])

    def _together(self, each: Sequence[tuple[Tensor, Tensor]]) -> list[float]:
        columns = max(_COLUMNS, sum(len(used) for _, used in each))
        x = self.unary.new_zeros(len(self.unary), columns)
        own, ends = [], [0]
        for labels, used in each:
            renamed = torch.zeros(self.unary.shape[-1], dtype=torch.int64)
            renamed[used] = torch.arange(len(used)) + ends[-1]
            own.append(renamed[labels].unsqueeze(-1))
            x.scatter_(-1, own[-1], 1.0)
            ends.append(ends[-1] + len(used))
        y = self._summed(columns)(x)
        sums = y.sum(0, dtype=torch.float64)
        found = []
        for (labels, _), where, begin, end in zip(each, own, ends[:-1], ends[1:], strict=True):
            pairs = sums[begin:end].sum() - y.gather(-1, where).sum(dtype=torch.float64)
            unary = self.unary.gather(-1, labels.unsqueeze(-1)).sum(dtype=torch.float64)
            found.append(float(self.weight * pairs / 2 + unary))
        return found

    @cached_property
    def _pairwise(self) -> pairwise.Pairwise:
        return pairwise.dense(self.operators, self.unary.shape[-1], compat=self.weight)

    def _summed(self, columns: int) -> pairwise.Pairwise:
        """The sum of the kernels, applied to each of ``columns`` columns."""
        if columns not in self._sums:
            self._sums[columns] = pairwise.dense(self.operators, columns, compat=torch.eye(columns))
        return self._sums[columns]


# Columns per pass: the native engine takes little longer for eight than for one.
_COLUMNS = 8

PAPER = Potts()
