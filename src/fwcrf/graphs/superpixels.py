"""Graphs whose nodes are superpixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fwcrf.graphs.grid import grid
from fwcrf.torch_ops.native import as_tensor
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True, eq=False)
class Superpixels:
    """A segmentation into regions, with the lengths of the borders between them."""

    nodes: Tensor  # (*shape), int64: region of each pixel, 0 to n - 1
    sizes: Tensor  # (n,): pixels
    edges: Tensor  # (m, 2), the smaller node first
    lengths: Tensor  # (m,): pairs of neighbouring pixels across the border

    __repr__ = in_one_line

    def total(self, values: Tensor) -> Tensor:
        """The sum of values ``(*batch, *shape, channels)`` over each region, ``(*batch, n, channels)``."""
        axes = self.nodes.dim()
        if values.dim() <= axes or values.shape[-axes - 1 : -1] != self.nodes.shape:
            raise ValueError(
                f"values has shape {tuple(values.shape)}; expected (*batch, *shape, channels) for regions of "
                f"shape {tuple(self.nodes.shape)}."
            )
        flat = values.flatten(-axes - 1, -2)
        sums = flat.new_zeros(*flat.shape[:-2], len(self.sizes), flat.shape[-1])
        return sums.index_add(-2, self.nodes.flatten().to(flat.device), flat)

    def mean(self, values: Tensor) -> Tensor:
        """The mean of values over each region, ``(*batch, n, channels)``."""
        return self.total(values) / self.sizes.to(values).unsqueeze(-1)

    def spread(self, values: Tensor) -> Tensor:
        """The value of each pixel's region, ``(*batch, *shape)``, from values per region ``(*batch, n)``."""
        return values[..., self.nodes.to(values.device)]


def superpixels(regions: Tensor | np.ndarray, connectivity: int | None = None) -> Superpixels:
    """The region graph of a map with an integer region id per pixel or voxel.

    ``connectivity`` defines neighbouring pixels, as in ``grid``.

    >>> s = superpixels(torch.tensor([[7, 7, 9], [7, 4, 9]]))
    >>> s.edges.tolist(), s.lengths.tolist(), s.sizes.tolist()
    ([[0, 1], [0, 2], [1, 2]], [2, 1, 1], [1, 3, 2])
    """
    r = as_tensor(regions)
    if r.dtype.is_floating_point or r.dtype.is_complex:
        raise TypeError(f"regions has dtype {r.dtype}; expected whole numbers, one region per pixel.")
    if r.dim() == 0 or r.numel() == 0:
        raise ValueError(f"regions has shape {tuple(r.shape)}; expected a map with at least one pixel.")
    _, nodes, sizes = r.long().unique(return_inverse=True, return_counts=True)
    ends = nodes.flatten()[grid(r.shape, connectivity).edges.to(nodes.device)].sort(-1).values
    ends = ends[ends[:, 0] != ends[:, 1]]
    n = len(sizes)
    keys, lengths = (ends[:, 0] * n + ends[:, 1]).unique(return_counts=True)
    edges = torch.stack([keys.div(n, rounding_mode="floor"), keys % n], -1)
    return Superpixels(nodes, sizes, edges, lengths)
