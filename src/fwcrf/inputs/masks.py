"""What is known about single pixels: labels that are certain, pixels that take no part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fwcrf.inputs.arrays import Stored, check_batch, kind, located
from fwcrf.inputs.scores import Scores


def read_mask(value: Any, name: str, scores: Scores, grid: Sequence[int]) -> Stored | None:
    """A mask ``(*batch, *grid)``: booleans, or integers that are true if not 0."""
    if value is None:
        return None
    stored = located(value, name, len(grid), channels=False)
    if kind(stored.array) not in "bi":
        raise TypeError(
            f"{name} has dtype {stored.array.dtype}; expected booleans, one per pixel: {name} > 0.5, for "
            "example."
        )
    _check_beside(stored, scores, grid)
    return stored


def read_scribbles(value: Any, scores: Scores, grid: Sequence[int]) -> Stored | None:
    """A map ``(*batch, *grid)`` of labels that are certain, -1 for none."""
    if value is None:
        return None
    stored = located(value, "scribbles", len(grid), channels=False)
    if kind(stored.array) != "i":
        raise TypeError(
            f"scribbles has dtype {stored.array.dtype}; expected integers: labels, and -1 where there is "
            "none."
        )
    _check_beside(stored, scores, grid)
    return stored


def constrained(logits: Tensor, keep: Tensor | None, scribbles: Tensor | None) -> Tensor:
    """Logits ``(*batch, n, L)`` with +inf where a label is certain: scribbled, or the best of a kept pixel.

    >>> logits = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    >>> constrained(logits, keep=torch.tensor([False, True]), scribbles=torch.tensor([0, -1]))
    tensor([[inf, 2.],
            [inf, 0.]])
    """
    certain = None
    if keep is not None:
        certain = torch.where(keep, logits.argmax(-1), -1)
    if scribbles is not None:
        _check_labels(scribbles, logits.shape[-1])
        certain = scribbles if certain is None else torch.where(scribbles >= 0, scribbles, certain)
    if certain is None:
        return logits
    every = torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(certain.unsqueeze(-1) == every, torch.inf)


def _check_labels(scribbles: Tensor, num_labels: int) -> None:
    most = int(scribbles.max())
    if most >= num_labels:
        raise ValueError(
            f"scribbles has labels up to {most}; expected 0 to {num_labels - 1}, and -1 where there is "
            "none. If another number means none: np.where(scribbles == 255, -1, scribbles.astype(int)), for "
            "example."
        )


def _check_beside(stored: Stored, scores: Scores, grid: Sequence[int]) -> None:
    if stored.grid != tuple(grid):
        raise ValueError(
            f"{stored.name} has shape {tuple(stored.array.shape)}; expected one entry per pixel of the "
            f"answer, {tuple(grid)}, with or without the batch before it."
        )
    check_batch(stored, scores.stored)
