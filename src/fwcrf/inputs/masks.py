"""Masks of a user: pixels that keep their label, pixels that take no part, and scribbled labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwcrf.inputs.arrays import Located, Window, check_batch, extremes, kind, locate
from fwcrf.inputs.scores import Scores
from fwcrf.torch_ops.native import LARGEST, warn_caller
from fwcrf.torch_ops.printed import in_one_line


class Masks(NamedTuple):
    """Masks and scribbles of a user, ``(*batch, *grid)``, each of them or None."""

    keep: Located | None
    ignore: Located | None
    scribbles: Located | None

    def read(self, images: slice, window: Window, device: torch.device) -> Known:
        """The masks of some images in a window."""
        dtypes = (torch.bool, torch.bool, torch.int64)
        parts = (
            None if one is None else one.read(dtype, images, window, device).flatten(-len(window))
            for one, dtype in zip(self, dtypes, strict=True)
        )
        return Known(*parts)


class Known(NamedTuple):
    """Masks and scribbles of the pixels of a window, ``(*batch, n)``, each of them or None."""

    keep: Tensor | None
    ignore: Tensor | None
    scribbles: Tensor | None

    __repr__ = in_one_line

    @property
    def is_empty(self) -> bool:
        """True if no pixel of the window is masked or scribbled."""
        masks = (self.keep, self.ignore, None if self.scribbles is None else self.scribbles >= 0)
        return not any(bool(one.any()) for one in masks if one is not None)

    def constrain(self, logits: Tensor) -> Tensor:
        """Logits ``(*batch, n, L)`` with +inf at certain labels: scribbled, or the best of a kept pixel.

        >>> known = Known(torch.tensor([False, True]), None, torch.tensor([0, -1]))
        >>> known.constrain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
        tensor([[inf, 2.],
                [inf, 0.]])
        """
        certain = None if self.keep is None else torch.where(self.keep, logits.argmax(-1), -1)
        if self.scribbles is not None:
            _check_labels(self.scribbles, logits.shape[-1])
            before = self.scribbles if certain is None else certain
            certain = torch.where(self.scribbles >= 0, self.scribbles, before)
        if certain is None:
            return logits
        every = torch.arange(logits.shape[-1], device=logits.device)
        return logits.masked_fill(certain.unsqueeze(-1) == every, torch.inf)


def read_masks(keep: Any, ignore: Any, scribbles: Any, scores: Scores, grid: Sequence[int]) -> Masks:
    """The masks that a user passes: booleans or integers; and scribbles: labels, -1 for none."""
    expected = "{name} has dtype {dtype}; expected booleans, one per pixel: {name} > 0.5, for example."
    labels = "{name} has dtype {dtype}; expected integers: labels, and -1 where there is none."
    found = Masks(
        read_map(keep, "keep", "bi", expected, scores, grid),
        read_map(ignore, "ignore", "bi", expected, scores, grid),
        read_map(scribbles, "scribbles", "i", labels, scores, grid),
    )
    if found.scribbles is not None:
        low, high = extremes(found.scribbles)
        if low >= 0 and high < scores.num_labels:
            warn_caller(
                "scribbles has a label for every pixel, which fixes them all, and nothing is left to refine. "
                "Expected -1 where there is no scribble: 0 is a label too. If 0 means none: "
                "np.where(scribbles == 0, -1, scribbles.astype(int)), for example."
            )
    return found


def read_map(
    value: Any, name: str, kinds: str, expected: str, scores: Scores, grid: Sequence[int]
) -> Located | None:
    """One number per pixel of the answer, of the ``kinds`` of ``inputs.arrays.kind``; None for None."""
    if value is None:
        return None
    found = locate(value, name, len(grid), channels=False)
    if kind(found.array) not in kinds:
        raise TypeError(expected.format(name=name, dtype=found.array.dtype))
    if found.grid != tuple(grid):
        raise ValueError(
            f"{name} has shape {tuple(found.array.shape)}; expected one entry per pixel of the answer, "
            f"{tuple(grid)}, with or without the batch before it."
        )
    check_batch(found, scores.located)
    return found


def _check_labels(scribbles: Tensor, num_labels: int) -> None:
    most = int(scribbles.max())
    if most >= num_labels:
        found = "from 2^63 on" if most == LARGEST else f"up to {most}"
        raise ValueError(
            f"scribbles has labels {found}; expected 0 to {num_labels - 1}, and -1 where there is "
            "none. If another number means none: np.where(scribbles == 255, -1, scribbles.astype(int)), for "
            "example."
        )
