"""Probabilities softmax(-unary) at some pixels of a grid: the best labels, and the rarity of all labels.

The pixels are a window of slices with steps, one per axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.torch_ops.native import differentiated, threads_for, untraced

_Window = Sequence[slice]


def best_labels(unary: Tensor, grid: Sequence[int], window: _Window) -> tuple[np.ndarray, np.ndarray]:
    """The largest probabilities of some pixels and their (first) labels, ``(images, pixels)``.

    >>> unary = torch.tensor([[0.0, 9.0], [5.0, 9.0], [9.0, 0.0]])
    >>> best_labels(unary, (3,), (slice(0, 3, 2),))[1]
    array([[0, 1]])
    """
    flat = unary.detach().reshape(-1, *unary.shape[-2:])
    if not untraced(unary):
        best, labels = torch.softmax(-_at(flat, grid, window), -1).max(-1)
        return best.numpy(force=True), labels.numpy(force=True)
    axes, count = _axes(grid, window)
    values = flat.numpy()
    best, labels = np.empty((len(flat), count), values.dtype), np.empty((len(flat), count), np.int64)
    _core.best_labels(values, axes, best, labels, threads_for(8 * labels.size * unary.shape[-1]))
    return best, labels


def rarity_in(unary: Tensor, grid: Sequence[int], window: _Window, floor: float) -> Tensor:
    """``rarity`` of the labels at some pixels, given finite energies ``(*batch, n, L)``: ``(*batch, 1, L)``.

    >>> rarity_in(torch.tensor([[0.0, 9.0], [0.0, 9.0], [9.0, 0.0]]), (3,), (slice(0, 3),), 0.01)
    tensor([[0.0000, 0.6783]])
    """
    if not untraced(unary) or differentiated(unary):
        return rarity(-_at(unary, grid, window), floor)
    values = unary.detach().reshape(-1, *unary.shape[-2:]).numpy()
    axes, count = _axes(grid, window)
    rare = np.empty((len(values), unary.shape[-1]), values.dtype)
    _core.rarity(values, axes, floor, rare, threads_for(8 * rare.size * count))
    return torch.from_numpy(rare).view(*unary.shape[:-2], 1, -1)


def rarity(logits: Tensor, floor: float, ignore: Tensor | None = None) -> Tensor:
    """-log of the share of each label in each image, ``(*batch, 1, L)``, 0 for the most frequent label.

    The share is the mean probability over pixels, plus ``floor``. A label that is nowhere the best one
    counts as the most frequent one, so that it does not appear out of nothing.

    >>> p = torch.tensor([[0.98, 0.02], [0.98, 0.02], [0.98, 0.02], [0.02, 0.98]])
    >>> rarity(p.log(), 0.01).flatten()
    tensor([0.0000, 1.0217])
    """
    p = torch.softmax(logits, -1)
    counted = ~torch.isnan(p[..., :1])
    if ignore is not None:
        counted = counted & ~ignore.unsqueeze(-1)
    share = torch.where(counted, p, 0.0).sum(-2, keepdim=True) / counted.sum(-2, keepdim=True).clamp(min=1)
    best = torch.where(counted, p.argmax(-1, keepdim=True), -1)
    wins = (best == torch.arange(p.shape[-1], device=p.device)).any(-2, keepdim=True)
    rare = -torch.log(share + floor)
    return torch.where(wins, rare - rare.amin(-1, keepdim=True), 0.0)


def _at(unary: Tensor, grid: Sequence[int], window: _Window) -> Tensor:
    """The energies of the pixels, ``(*batch, pixels, L)``."""
    return unary.unflatten(-2, tuple(grid))[(..., *window, slice(None))].flatten(-1 - len(grid), -2)


def _axes(grid: Sequence[int], window: _Window) -> tuple[list[tuple[int, int, int, int]], int]:
    """Size, first pixel, step and number of pixels of each axis; and the number of all pixels."""
    axes = []
    for size, part in zip(grid, window, strict=True):
        first, last, step = part.indices(size)
        axes.append((size, first, step, len(range(first, last, step))))
    return axes, math.prod(axis[3] for axis in axes)
