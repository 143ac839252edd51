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
Window = tuple[slice, slice]  # rows and columns of an image
ALIGNED = 8  # pixels: a window begins at a multiple, so that features at a half to an eighth can be cut
WHOLE: Window = (slice(None), slice(None))


@dataclass(frozen=True)
class Divided:
    """A network in evaluation mode: batch norms keep their statistics in training, too."""

    net: nn.Module
    layers: Callable[[Tensor], Features]  # frozen; of a normalised image (1, 3, H, W)
    head: Callable[[Features, tuple[int, int], Window], Tensor]  # logits (1, L, h, w) of a window

    __repr__ = in_one_line

    @torch.no_grad()
    def features(self, image: Tensor) -> Features:
        """The features of an image ``(3, H, W)`` in grey levels."""
        net: Any = self.net
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in net.normalization)
        return self.layers(((image - mean) / std)[None])


def espnet(weights: Path, num_classes: int) -> Divided:
    """ESPNet with a frozen encoder. Channels from ``num_classes`` on, for ignored pixels, are left out.

    The head sees the features of a window only, as in every training on crops.
    """
    net = ESPNet.from_file(weights)
    frozen(net, ("encoder",))

    def layers(x: Tensor) -> Features:
        height, width = x.shape[-2:]
        return net.encoder(F.pad(x.flip(1), (0, -width % 8, 0, -height % 8), mode="replicate"))

    def head(features: Features, size: tuple[int, int], window: Window) -> Tensor:
        ends = [range(length)[part] for length, part in zip(size, window, strict=True)]
        cut = [_cut(each, window, stride) for each, stride in zip(features, (2, 4, 8), strict=True)]
        return net.classifier(net.decoded(*cut))[:, :num_classes, : len(ends[0]), : len(ends[1])]

    return Divided(net, layers, head)


def deeplab(weights: Path, num_classes: int, canvas: int | None = 513) -> Divided:
    """DeepLabv3 with a frozen MobileNetV2. The head sees the whole image, whose mean it uses."""
    model = Model("mobilenetv2", str(weights), frozen=("backbone",), settings={"canvas": canvas})
    net: Any = build.network(model, num_classes).eval()

    def head(features: Features, size: tuple[int, int], window: Window) -> Tensor:
        logits = from_grid(net.head(features[0].float(), size), STRIDE, size)
        return logits[..., window[0], window[1]]

    return Divided(net, lambda x: [net.backbone(net.padded(x))], head)


def _cut(features: Tensor, window: Window, stride: int) -> Tensor:
    """The part of features of this stride that belongs to a window of the image, in float32."""
    rows, columns = (
        slice(
            None if part.start is None else part.start // stride,
            # The image was padded to a multiple of 8: a window at its end includes the padding.
            None if part.stop is None else -(-part.stop // ALIGNED) * ALIGNED // stride,
        )
        for part in window
    )
    return features[..., rows, columns].float().contiguous()
