"""ESPNet: a network for road scenes in 0.4 million parameters, by pyramids of dilated convolutions.

::

    image -> /2 -> ESP blocks at /4 -> ESP blocks at /8 -> classes at /8
                                                               | up
             |          |--------------------------> classes at /4
             |                                                 | up
             |---------------------------------------> classes at /2 -> up -> logits

An ESP block reduces its input to a fifth of its output channels, applies five 3x3 convolutions with dilations
1, 2, 4, 8 and 16, and adds each dilated result to the sum of the results before it, against gridding.
Parameters are named as in published weights.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fwcrf.apps.models.normalization import Normalization
from fwcrf.apps.models.weights import load, read_state

_DILATIONS = (2, 4, 8, 16)
_EPS = 1e-3
# Of images in the order red, green, blue; the network itself takes blue first.
CAMVID = Normalization(
    tuple(reversed((110.331, 108.409, 105.033))),  # type: ignore[arg-type]
    tuple(255 * std for std in reversed((72.126, 72.691, 69.904))),  # type: ignore[arg-type]
)


class ESPNet(nn.Module):
    """Logits ``(B, num_classes, H, W)`` of normalised images ``(B, 3, H, W)``, red first.

    ``p`` and ``q`` are the numbers of ESP blocks at a quarter and at an eighth of the resolution. Height and
    width are multiples of 8; images of other sizes are padded by their border, and the logits are cropped.
    Channels of weights that are not classes, such as one for ignored pixels, come last: ``extra`` is their
    number, and ``forward`` leaves them out.
    """

    normalization = CAMVID

    def __init__(self, num_classes: int = 12, p: int = 2, q: int = 8, extra: int = 0) -> None:
        super().__init__()
        self.num_classes: int = num_classes
        num_classes += extra
        self.encoder: Encoder = Encoder(num_classes, p, q)
        self.br: nn.BatchNorm2d = nn.BatchNorm2d(num_classes, eps=_EPS)
        self.up_l3: nn.Sequential = nn.Sequential(_doubled(num_classes))
        self.level3_C: Conv = Conv(131, num_classes, 1)
        self.combine_l2_l3: nn.Sequential = nn.Sequential(
            NormAct(2 * num_classes), Block(2 * num_classes, num_classes)
        )
        self.up_l2: nn.Sequential = nn.Sequential(_doubled(num_classes), NormAct(num_classes))
        self.conv: ConvNormAct = ConvNormAct(19 + num_classes, num_classes, 3)
        self.classifier: nn.ConvTranspose2d = _doubled(num_classes)

    @classmethod
    def from_file(cls, path: str | Path) -> ESPNet:
        """The network with published weights, in evaluation mode."""
        state = read_state(path)
        net = cls(len(state["br.weight"]))
        load(net, state)
        return net.eval()

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        x = F.pad(x.flip(1), (0, -width % 8, 0, -height % 8), mode="replicate")
        return self.classifier(self.features(x))[:, : self.num_classes, :height, :width]

    def features(self, x: Tensor) -> Tensor:
        """Input of the last layer at half the resolution, for images with blue first."""
        return self.decoded(*self.encoder(x))

    def decoded(self, half: Tensor, quarter: Tensor, classes: Tensor) -> Tensor:
        """Input of the last layer, from the three outputs of the encoder."""
        up = self.up_l3(self.br(classes))
        up = self.up_l2(self.combine_l2_l3(torch.cat([self.level3_C(quarter), up], 1)))
        return self.conv(torch.cat([up, half], 1))


class Encoder(nn.Module):
    """Features at half and at a quarter of the resolution, and classes at an eighth.

    The image itself, averaged, is appended to the features of both resolutions.
    """

    def __init__(self, num_classes: int, p: int, q: int) -> None:
        super().__init__()
        self.level1: ConvNormAct = ConvNormAct(3, 16, 3, stride=2)
        self.b1: NormAct = NormAct(16 + 3)
        self.level2_0: Down = Down(19, 64)
        self.level2: nn.ModuleList = nn.ModuleList(Block(64, 64) for _ in range(p))
        self.b2: NormAct = NormAct(64 + 64 + 3)
        self.level3_0: Down = Down(131, 128)
        self.level3: nn.ModuleList = nn.ModuleList(Block(128, 128) for _ in range(q))
        self.b3: NormAct = NormAct(128 + 128)
        self.classifier: Conv = Conv(256, num_classes, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        image2 = F.avg_pool2d(x, 3, 2, 1)
        image4 = F.avg_pool2d(image2, 3, 2, 1)
        half = self.b1(torch.cat([self.level1(x), image2], 1))
        first = y = self.level2_0(half)
        for block in self.level2:
            y = block(y)
        quarter = self.b2(torch.cat([y, first, image4], 1))
        first = y = self.level3_0(quarter)
        for block in self.level3:
            y = block(y)
        return half, quarter, self.classifier(self.b3(torch.cat([first, y], 1)))


class NormAct(nn.Module):
    """Batch norm and PReLU."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bn: nn.BatchNorm2d = nn.BatchNorm2d(channels, eps=_EPS)
        self.act: nn.PReLU = nn.PReLU(channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(x))


class Conv(nn.Module):
    """Convolution that keeps the size, or halves it with stride 2."""

    def __init__(self, channels: int, out: int, size: int, *, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv: nn.Conv2d = nn.Conv2d(
            channels, out, size, stride, size // 2 * dilation, dilation, bias=False
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


class ConvNormAct(Conv):
    """Convolution, batch norm and PReLU."""

    def __init__(self, channels: int, out: int, size: int, *, stride: int = 1) -> None:
        super().__init__(channels, out, size, stride=stride)
        self.bn: nn.BatchNorm2d = nn.BatchNorm2d(out, eps=_EPS)
        self.act: nn.PReLU = nn.PReLU(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Pyramid(nn.Module):
    """Five convolutions with growing dilations; the first gets the channels that are left over."""

    def __init__(self, channels: int, out: int, size: int, stride: int) -> None:
        super().__init__()
        each = out // 5
        self.c1: Conv = Conv(channels, each, size, stride=stride)
        self.d1: Conv = Conv(each, out - 4 * each, 3)
        for dilation in _DILATIONS:
            setattr(self, f"d{dilation}", Conv(each, each, 3, dilation=dilation))

    def pyramid(self, x: Tensor) -> Tensor:
        x = self.c1(x)
        sums: list[Tensor] = []
        for dilation in _DILATIONS:
            y = getattr(self, f"d{dilation}")(x)
            sums.append(y + sums[-1] if sums else y)
        return torch.cat([self.d1(x), *sums], 1)


class Down(Pyramid):
    """An ESP block that halves the resolution."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__(channels, out, 3, 2)
        self.bn: nn.BatchNorm2d = nn.BatchNorm2d(out, eps=_EPS)
        self.act: nn.PReLU = nn.PReLU(out)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.pyramid(x)))


class Block(Pyramid):
    """An ESP block; its input is added where it has as many channels as the output."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__(channels, out, 1, 1)
        self.bn: NormAct = NormAct(out)
        self.is_residual: bool = channels == out

    def forward(self, x: Tensor) -> Tensor:
        y = self.pyramid(x)
        return self.bn(y + x if self.is_residual else y)


def _doubled(channels: int) -> nn.ConvTranspose2d:
    """Transposed convolution to twice the resolution."""
    return nn.ConvTranspose2d(channels, channels, 2, stride=2, bias=False)
