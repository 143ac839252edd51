"""Published networks in two parts: frozen layers, whose features are computed once, and a trained head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fwcrf.apps.models import ESPNet
from fwcrf.apps.models.mobilenetv2 import STRIDE
from fwcrf.apps.models.resize import from_grid
from fwcrf.apps.training import build
from fwcrf.apps.training.config import Model
from fwcrf.apps.training.optimizers import frozen
from fwcrf.torch_ops.printed import in_one_line

Features = Sequence[Tensor]


@dataclass(frozen=True)
class Divided:
    """A network in evaluation mode: batch norms keep their statistics in training, too."""

    net: nn.Module
    layers: Callable[[Tensor], Features]  # frozen; of a normalised image (1, 3, H, W)
    head: Callable[[Features, tuple[int, int]], Tensor]  # logits (1, L, H, W), from the features

    __repr__ = in_one_line

    @torch.no_grad()
    def features(self, image: Tensor) -> Features:
        """The features of an image ``(3, H, W)`` in grey levels."""
        net: Any = self.net
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in net.normalization)
        return self.layers(((image - mean) / std)[None])


def espnet(weights: Path, num_classes: int) -> Divided:
    """ESPNet with a frozen encoder. Channels from ``num_classes`` on, for ignored pixels, are left out."""
    net = ESPNet.from_file(weights)
    frozen(net, ("encoder",))

    def layers(x: Tensor) -> Features:
        height, width = x.shape[-2:]
        return net.encoder(F.pad(x.flip(1), (0, -width % 8, 0, -height % 8), mode="replicate"))

    def head(features: Features, size: tuple[int, int]) -> Tensor:
        return net.classifier(net.decoded(*features))[:, :num_classes, : size[0], : size[1]]

    return Divided(net, layers, head)


def deeplab(weights: Path, num_classes: int, canvas: int | None = 513) -> Divided:
    """DeepLabv3 with a frozen MobileNetV2."""
    model = Model("mobilenetv2", str(weights), frozen=("backbone",), settings={"canvas": canvas})
    net: Any = build.network(model, num_classes).eval()

    def head(features: Features, size: tuple[int, int]) -> Tensor:
        return from_grid(net.head(features[0], size), STRIDE, size)

    return Divided(net, lambda x: [net.backbone(net.padded(x))], head)
