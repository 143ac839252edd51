"""Test-time augmentation: mean probabilities over flipped and scaled copies of an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Views:
    """Scale factors at which a model sees an image, and a flag for mirrored copies."""

    scales: tuple[float, ...] = (1.0,)
    flip: bool = False

    def __post_init__(self) -> None:
        if not self.scales or min(self.scales) <= 0:
            raise ValueError(f"scales={self.scales!r}; expected positive numbers.")


def probabilities(model: Callable[[Tensor], Tensor], image: Tensor, views: Views) -> Tensor:
    """Mean of exp(model(view)) over the views, mapped back to the image: ``(B, L, H, W)``.

    ``model`` maps images ``(B, 3, H, W)`` to log-probabilities.

    >>> image = torch.rand(1, 3, 6, 8)
    >>> seen = probabilities(lambda x: x.log_softmax(1), image, Views(flip=True))
    >>> torch.allclose(seen, image.softmax(1))
    True
    """
    size = (image.shape[-2], image.shape[-1])
    total = torch.zeros(())
    count = 0
    for scale in views.scales:
        scaled = _resized(image, [max(1, round(scale * side)) for side in size])
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
