"""The exact Gaussian kernel, by brute force in bounded memory: the reference for all approximations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fwcrf.kernels.operator import Operator, check_features
from fwcrf.torch_ops.exact import exact_filter
from fwcrf.torch_ops.native import check_finite, differentiated, kept_property, matmul, untraced
from fwcrf.torch_ops.printed import in_one_line

# Up to this many points, the matrix is kept: 16 MB in float32.
_KEPT = 2048


@dataclass(frozen=True, eq=False)
class Exact(Operator):
    """K_ij = exp(-|f_i - f_j|^2 / 2) over features in standard deviations, ``(*batch, n, D)``.

    Time grows with n^2; memory does not: rows are formed in chunks of at most 16 MB, and only for up to
    2048 points the matrix is kept. Differentiable to any order in x and in the features.

    >>> K = Exact(torch.zeros(3, 1))
    >>> K(torch.tensor([[1.0], [2.0], [3.0]])).squeeze(-1)
    tensor([6., 6., 6.])
    """

    features: Tensor
    nonnegative = True
    is_symmetric = True

    __repr__ = in_one_line

    def __post_init__(self) -> None:
        check_features(self.features)

    @property
    def n(self) -> int:  # type: ignore[override]
        return self.features.shape[-2]

    @cached_property
    def batch_shape(self) -> torch.Size:  # type: ignore[override]
        return self.features.shape[:-2]

    @property
    def example(self) -> Tensor:
        return self.features

    def apply(self, x: Tensor) -> Tensor:
        if self.n <= _KEPT and untraced(x) and not differentiated(x, self.features):
            check_finite(x, "x")
            return matmul(self._matrix.to(x.dtype), x)
        return exact_filter(x, self.features.to(x.dtype))

    @kept_property
    def _matrix(self) -> Tensor:
        # The form with a matrix product is faster and loses half the digits.
        f = self.features.detach()
        return torch.cdist(f, f, compute_mode="donot_use_mm_for_euclid_dist").square_().mul_(-0.5).exp_()

    @property
    def T(self) -> Operator:
        return self

    def diagonal(self) -> Tensor:
        return self.features.new_ones(self.features.shape[:-1])
