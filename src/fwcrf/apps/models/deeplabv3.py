"""DeepLabv3 with a ResNet-101 backbone; parameters are named as in torchvision's ``deeplabv3_resnet101``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fwcrf.apps.models.normalization import IMAGENET
from fwcrf.apps.models.resize import bilinear
from fwcrf.apps.models.resnet import LAYERS_101, ResNet

# Dilations of the pyramid, by output stride.
RATES = {8: (12, 24, 36), 16: (6, 12, 18)}


class DeepLabv3ResNet101(nn.Module):
    """Logits ``(B, num_classes, H, W)`` of normalised images ``(B, 3, H, W)``.

    ``auxiliary`` adds a second classifier on the layer before the last, as in published weights. In training
    mode, the network then returns a dict of ``"out"`` and ``"aux"``; the loss of ``"aux"`` has a low weight.

    At output stride 8 it is torchvision's network. Output stride 16, that of the paper's training, is faster.
    """

    normalization = IMAGENET

    def __init__(
        self,
        num_classes: int = 21,
        *,
        auxiliary: bool = False,
        output_stride: int = 8,
        layers: tuple[int, ...] = LAYERS_101,
    ) -> None:
        super().__init__()
        if output_stride not in RATES:
            raise ValueError(f"output_stride={output_stride!r}; expected 8 or 16.")
        self.backbone: ResNet = ResNet(output_stride, layers)
        self.classifier: nn.Sequential = nn.Sequential(
            ASPP(2048, RATES[output_stride]), *conv_bn_relu(256, 256, 3), nn.Conv2d(256, num_classes, 1)
        )
        self.aux_classifier: nn.Sequential | None = None
        if auxiliary:
            self.aux_classifier = nn.Sequential(
                *conv_bn_relu(1024, 256, 3), nn.Dropout(0.1), nn.Conv2d(256, num_classes, 1)
            )

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        size = (x.shape[-2], x.shape[-1])
        third, last = self.backbone(x)
        out = bilinear(self.classifier(last), size)
        if self.aux_classifier is None or not self.training:
            return out
        return {"out": out, "aux": bilinear(self.aux_classifier(third), size)}


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: concatenated 1x1, three dilated 3x3 and global mean, projected."""

    def __init__(self, channels: int, rates: Sequence[int], out: int = 256) -> None:
        super().__init__()
        self.convs: nn.ModuleList = nn.ModuleList(
            [
                nn.Sequential(*conv_bn_relu(channels, out, 1)),
                *(nn.Sequential(*conv_bn_relu(channels, out, 3, rate)) for rate in rates),
                nn.Sequential(nn.AdaptiveAvgPool2d(1), *conv_bn_relu(channels, out, 1)),
            ]
        )
        self.project: nn.Sequential = nn.Sequential(
            *conv_bn_relu(len(self.convs) * out, out, 1), nn.Dropout(0.5)
        )

    def forward(self, x: Tensor) -> Tensor:
        *local, pooled = (conv(x) for conv in self.convs)
        # Interpolating a single pooled pixel gives a constant, so expand is enough.
        return self.project(torch.cat([*local, pooled.expand_as(local[0])], 1))


def conv_bn_relu(channels: int, out: int, kernel: int, dilation: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(channels, out, kernel, padding=kernel // 2 * dilation, dilation=dilation, bias=False)
    return [conv, nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
