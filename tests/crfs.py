"""Small layers and their inputs, for tests of the layer and of its gradients."""

from __future__ import annotations

import torch
from helpers import normal, uniform
from torch import Tensor

from fwcrf import DenseCRF
from fwcrf.kernels import Bilateral, Spatial

GRID, L = (4, 5), 3


def kernels(method: str = "lattice", weight: float = 1.5) -> list:
    """Bandwidths that fit a small image with values from 0 to 1.

    Not round ones: a pixel may then lie on the border of two lattice cells, where the lattice has a jump.
    """
    return [Spatial(1.21, weight=0.8), Bilateral(2.93, 0.37, weight=weight, method=method)]


def image(*batch: int, grid=GRID, channels: int = 3, dtype=torch.float64, seed: int = 0) -> Tensor:
    return uniform(*batch, channels, *grid, dtype=dtype, seed=seed)


def logits(*batch: int, grid=GRID, labels: int = L, dtype=torch.float64, seed: int = 1) -> Tensor:
    return normal(*batch, labels, *grid, dtype=dtype, seed=seed)


def crf(num_labels: int = L, *, dtype=torch.float64, method: str = "lattice", **settings) -> DenseCRF:
    settings.setdefault("kernels", kernels(method))
    return DenseCRF(num_labels, **settings).to(dtype)
