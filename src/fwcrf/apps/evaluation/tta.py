"""Test-time augmentation: the mean of what a model says of an image flipped and scaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Views:
    """The sizes at which an image is shown, as factors, and whether it is also shown mirrored."""

    scales: tuple[float, ...] = (1.0,)
    flip: bool = False

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) <= 0:
            raise ValueError(f"scales={self.scales!r}; expected positive numbers.")


def probabilities(model: Callable[[Tensor], Tensor], image: Tensor, views: Views) -> Tensor:
    """The mean of exp(model(view)) over the views, each brought back to the image: ``(B, L, H, W)``.

    ``model`` takes images ``(B, 3, H, W)`` and gives log-probabilities.

    >>> image = torch.rand(1, 3, 6, 8)
    >>> seen = probabilities(lambda x: x.log_softmax(1), image, Views(flip=True))
    >>> torch.allclose(seen, image.softmax(1))
    True
    """
    size = (image.shape[-2], image.shape[-1])
    total = torch.zeros(())
    count = 0
    for scale in views.scales:
        scaled = _resized(image, [max(1, round(scale * have)) for have in size])
        for mirrored in (False, True) if views.flip else (False,):
            answer = model(scaled.flip(-1) if mirrored else scaled).exp()
            total = total + _resized(answer.flip(-1) if mirrored else answer, size)
            count += 1
    return total / count


def _resized(x: Tensor, size: Sequence[int]) -> Tensor:
    if tuple(x.shape[-2:]) == tuple(size):
        return x
    x = x if x.is_floating_point() else x.float()
    return F.interpolate(x, size=tuple(size), mode="bilinear", antialias=True)
