"""The operators of pydensecrf's model: its lattice, its scale, its normalizations.

Its filter blurs the axes in one order, so that it is not quite symmetric, and multiplies by 1 / (1 + 2^-d)
for d features, whatever the image. Nothing is fitted to the Gaussian, and the lattice's own diagonal stays.
Our lattice without calibration is the same one, and so are the results up to float rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fwcrf.kernels import Lattice, Normalization
from fwcrf.pairwise import Pairwise

# Added to the row sums that are divided by.
_TINY = 1e-20
# It reads points by fours, and takes those that are missing from the last four to be at the origin.
_GROUP = 4


def kernel(features: Tensor, normalization: Normalization, weight: float = 1.0) -> Lattice:
    """``weight`` times the normalised filter over features ``(n, d)``."""
    n, d = features.shape
    # Those points have no values, but the lattice has cells there, through which others reach one another.
    filled = torch.nn.functional.pad(features, (0, 0, 0, -n % _GROUP)) if n % _GROUP else features
    lattice = Lattice.uncalibrated(filled, blur="forward")
    table = lattice.splat[:n]
    lattice = replace(lattice, index=lattice.index[:n], splat=table, slice=table, order=lattice.order[:n])
    scale = 1 / (1 + 2.0**-d)
    sums = scale * lattice.row_sums().unsqueeze(-1) + _TINY
    left = right = torch.ones_like(sums)
    if normalization == "symmetric":
        left = right = sums.rsqrt()
    elif normalization == "before":
        right = 1 / sums
    elif normalization == "after":
        left = 1 / sums
    return replace(lattice, splat=table * right, slice=table * (left * (scale * weight)), _diagonal=[])


@dataclass(frozen=True)
class Attraction(Pairwise):
    """P = sum_c K_c (x) I: neighbours gain, or pay, for having the same label.

    Potts with weight w is this with -w in the kernel, up to a constant per pixel. The weight is in the
    tables of the lattice, where it costs nothing.
    """

    operators: Sequence[Lattice]  # weights included
    num_labels: int

    def __call__(self, x: Tensor) -> Tensor:
        if not self.operators:
            return torch.zeros_like(x)
        total = self.operators[0](x)
        for operator in self.operators[1:]:
            total += operator(x)
        return total

    def to_dense(self) -> Tensor:
        eye = torch.eye(self.num_labels)
        return torch.stack([torch.kron(K.to_dense(), eye) for K in self.operators]).sum(0)

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        total = torch.zeros(())
        for operator in self.operators:
            total = total + operator.row_sums().abs()
        return total.unsqueeze(-1).expand(*total.shape, num_labels)
