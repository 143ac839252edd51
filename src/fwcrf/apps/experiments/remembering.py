"""A frozen backbone that caches its features per image."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fwcrf.apps.models.mobilenetv2 import MobileNetV2
from fwcrf.apps.training import build
from fwcrf.apps.training.config import Model

Features = dict[bytes, Tensor]

# Limit of the cache. At 513 pixels and depth 0.5 an entry takes 2.7 MB.
_MOST = 600


class Remembering(MobileNetV2):
    """MobileNetV2 with a cache of features by image hash. Raises if it is not frozen."""

    features: Features

    def forward(self, input: Tensor) -> Tensor:
        if any(p.requires_grad for p in self.parameters()) or self.training:
            raise ValueError("the backbone is trainable; expected a frozen one, to cache features.")
        return torch.cat([self._of(image[None]) for image in input])

    def _of(self, image: Tensor) -> Tensor:
        key = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=16).digest()
        if key not in self.features:
            with torch.no_grad():
                answer = super().forward(image)
            if len(self.features) >= _MOST:
                return answer
            self.features[key] = answer
        return self.features[key]


def network(features: Features) -> build.Network:
    """A function that makes the published network with a frozen backbone. All networks share ``features``."""

    def make(num_classes: int, weights: str, **settings: Any) -> nn.Module:
        model = Model("mobilenetv2", str(Path(weights)), frozen=("backbone",), settings=settings)
        net: Any = build.network(model, num_classes)
        # A new class in place keeps parameters and their names.
        net.backbone.__class__ = Remembering
        net.backbone.features = features
        return net

    return make
