"""The operators of pydensecrf's model: its lattice, its scale, its normalizations.

Its filter blurs the axes in one order, so that it is not quite symmetric, and multiplies by 1 / (1 + 2^-d)
for d features, for every image. Nothing is fitted to the Gaussian, and the diagonal of the lattice stays.
Our lattice without calibration has the same results up to float rounding, if points on the border of two
simplices are put into the same simplex; a grid has many such points. So points are embedded in float32
arithmetic here, while the rest of the library uses float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Potts
from fwcrf.engine.limits import Refusal
from fwcrf.engine.model import Model as Engine
from fwcrf.kernels import Lattice, Normalization
from fwcrf.kernels.lattice import MAX_DIMENSION
from fwcrf.kernels.operator import Operator
from fwcrf.pairwise import Kronecker, Pairwise
from fwcrf.torch_ops.lattice import build_native
from fwcrf.torch_ops.native import kept_property
from fwcrf.torch_ops.printed import in_one_line

# pydensecrf adds this to row sums before it divides by them.
_TINY = 1e-20
# pydensecrf reads points in groups of four, and fills the last group with points at the origin.
_GROUP = 4
# Its lattice coordinates are 16-bit integers. Beyond, no result agrees, and points are embedded in float64.
_FARTHEST = 2**15


def kernel(features: Tensor, normalization: Normalization, weight: float = 1.0) -> Lattice:
    """``weight`` times the normalised filter over features ``(n, d)``."""
    n, d = features.shape
    # The added points have no values, but make lattice cells through which other points reach each other.
    lattice = _lattice(torch.nn.functional.pad(features, (0, 0, 0, -n % _GROUP)) if n % _GROUP else features)
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
    return replace(lattice, splat=table * right, slice=table * (left * (scale * weight)))


def _lattice(features: Tensor) -> Lattice:
    """The plain lattice of float32 features, each point embedded in float arithmetic."""
    d = features.shape[-1]
    if not 1 <= d <= MAX_DIMENSION:
        raise ValueError(
            f"features has {d} rows, one per feature; the lattice takes 1 to {MAX_DIMENSION}. Reduce them, "
            "by principal components for example."
        )
    std = np.float32(math.sqrt(2 / 3) * (d + 1))
    scale = [float(np.float32(float(std) / math.sqrt((i + 1) * (i + 2)))) for i in range(d)]
    index, weight, order, neighbors = build_native(features.unsqueeze(0), scale, single_within=_FARTHEST)
    return Lattice(index[0], weight[0], weight[0], order[0], neighbors, blur="forward")


@dataclass(frozen=True)
class Model(Pairwise):
    """P = sum_c K_c (x) I, plus terms K (x) M: a negative K_c rewards neighbours with the same label.

    Potts with weight w is K (x) I with -w in the kernel, up to a constant per pixel. The weight is in the
    tables of the lattice, where it costs nothing.
    """

    operators: Sequence[Lattice]  # weights included
    num_labels: int
    others: Sequence[Kronecker] = ()  # with a vector or a matrix over the labels

    __repr__ = in_one_line

    def __call__(self, x: Tensor) -> Tensor:
        parts = (*self.operators, *self.others)
        if not parts:
            return torch.zeros_like(x)
        total = parts[0](x)
        for part in parts[1:]:
            total += part(x)
        return total

    def engine(self) -> Engine | Refusal:
        return self._engine

    @kept_property
    def _engine(self) -> Engine | Refusal:
        """P with Potts terms of weight -1: the same up to a number per pixel, which changes no step."""
        potts = Potts(torch.tensor(-1.0, dtype=torch.float32, device="cpu"))
        terms: list[tuple[Operator, Compatibility]] = [(operator, potts) for operator in self.operators]
        terms += [(other.operator, other.compat) for other in self.others]
        return Engine.of(terms)

    def to_dense(self) -> Tensor:
        eye = torch.eye(self.num_labels, dtype=torch.float32, device="cpu")
        same = [torch.kron(K.to_dense(), eye) for K in self.operators]
        return torch.stack([*same, *(other.to_dense() for other in self.others)]).sum(0)

    def absolute_row_sums(self, num_labels: int) -> Tensor:
        total = torch.zeros(num_labels, dtype=torch.float32, device="cpu")
        for operator in self.operators:
            total = total + operator.row_sums().abs().unsqueeze(-1)
        for other in self.others:
            total = total + other.absolute_row_sums(num_labels)
        return total
