"""Grid graphs of pixels or voxels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fwcrf.torch_ops.adjacency import MOST
from fwcrf.torch_ops.native import as_tensor, with_memory_errors
from fwcrf.torch_ops.printed import in_one_line


class Edges(NamedTuple):
    """Pairs of neighbours and a weight for each."""

    edges: Tensor  # (m, 2), int64
    weights: Tensor  # (m,)

    __repr__ = in_one_line


@with_memory_errors
def grid(
    shape: Sequence[int],
    connectivity: int | None = None,
    *,
    image: Tensor | np.ndarray | None = None,
    weight: float = 1.0,
    beta: float | None = None,
) -> Edges:
    """Edges and weights of a grid with any number of axes. Nodes are numbered row by row.

    ``connectivity`` is the number of neighbours of an inner node: 4 or 8 in two dimensions, 6, 18 or 26 in
    three, ...; the default is the smallest. The weight of an edge is ``weight`` divided by its length. With
    an ``image`` of that shape (optional channels last), it is also multiplied by exp(-beta d^2), where d is
    the distance of the two colours, so that different labels cost less between different colours. ``beta``
    defaults to 1 / (2 mean d^2).

    >>> grid((2, 2)).edges.tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    >>> len(grid((2, 2), 8).edges)
    6
    """
    shape = tuple(int(size) for size in shape)
    if not shape or min(shape) < 1 or math.prod(shape) > MOST:
        raise ValueError(f"shape={shape}; expected one size per axis, 1 or more, of at most {MOST} nodes.")
    nodes = torch.arange(math.prod(shape), device="cpu").view(shape)
    pairs, lengths = [], []
    for offset in _offsets(len(shape), connectivity):
        first, second = (nodes[_part(offset, sign)] for sign in (1, -1))
        pairs.append(torch.stack([first.flatten(), second.flatten()], -1))
        length = math.sqrt(sum(map(abs, offset)))
        lengths.append(torch.full((len(pairs[-1]),), length, dtype=torch.float32, device="cpu"))
    edges = torch.cat(pairs)
    weights = weight / torch.cat(lengths)
    return Edges(edges, weights if image is None else weights * _contrast(image, shape, edges, beta))


def _offsets(axes: int, connectivity: int | None) -> list[tuple[int, ...]]:
    """Offsets to neighbours, one of each opposite pair, the shorter ones first, the last axis first."""
    steps = [o for o in itertools.product((0, 1, -1), repeat=axes) if next(filter(None, o), 0) == 1]
    kinds = {2 * sum(sum(map(abs, o)) <= far for o in steps): far for far in range(1, axes + 1)}
    if connectivity is None:
        connectivity = min(kinds)
    if connectivity not in kinds:
        raise ValueError(
            f"connectivity={connectivity}; expected {', '.join(map(str, kinds))} for a grid of {axes} axes."
        )
    return sorted(
        (o for o in steps if sum(map(abs, o)) <= kinds[connectivity]), key=lambda o: sum(map(abs, o))
    )


def _part(offset: Sequence[int], sign: int) -> tuple[slice, ...]:
    """Slices of the nodes with a neighbour at ``offset`` (sign 1), or of these neighbours (sign -1)."""
    ends = {0: slice(None), 1: slice(None, -1), -1: slice(1, None)}
    return tuple(ends[sign * o] for o in offset)


def _contrast(
    image: Tensor | np.ndarray, shape: tuple[int, ...], edges: Tensor, beta: float | None
) -> Tensor:
    color = as_tensor(image)
    color = color if color.is_floating_point() else color.float()
    if color.shape == shape:
        color = color.unsqueeze(-1)
    if color.shape[:-1] != shape:
        raise ValueError(
            f"image has shape {tuple(color.shape)}; expected {shape} with or without channels after it."
        )
    color = color.reshape(-1, color.shape[-1])
    if not bool(torch.isfinite(color).all()):
        raise ValueError("image has NaN or infinite values; expected finite values.")
    d = (color[edges[:, 0]] - color[edges[:, 1]]).square().sum(-1)
    if beta is None:
        mean = float(d.mean()) if len(d) else 0.0
        beta = 1 / (2 * mean) if mean > 0 else 0.0
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta={beta!r}; expected a finite number, 0 or more.")
    return (-beta * d).exp()
