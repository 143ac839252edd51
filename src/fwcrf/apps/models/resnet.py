"""ResNet-101 without classifier, with dilation instead of the last strides; names as in torchvision."""

from __future__ import annotations

from torch import Tensor, nn

LAYERS_101 = (3, 4, 23, 3)


class Bottleneck(nn.Module):
    """x + conv1x1(conv3x3(conv1x1(x))) with batch norm and ReLU; the output has 4 ``width`` channels."""

    def __init__(self, channels: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.conv1: nn.Conv2d = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1: nn.BatchNorm2d = nn.BatchNorm2d(width)
        self.conv2: nn.Conv2d = nn.Conv2d(width, width, 3, stride, dilation, dilation, bias=False)
        self.bn2: nn.BatchNorm2d = nn.BatchNorm2d(width)
        self.conv3: nn.Conv2d = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3: nn.BatchNorm2d = nn.BatchNorm2d(4 * width)
        self.relu: nn.ReLU = nn.ReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride > 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Outputs of the last two layers, of 1024 and 2048 channels, for images ``(B, 3, H, W)``."""

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(self, output_stride: int = 8, layers: tuple[int, ...] = LAYERS_101) -> None:
        super().__init__()
        if output_stride not in (8, 16, 32):
            raise ValueError(f"output_stride={output_stride!r}; expected 8, 16 or 32.")
        self.conv1: nn.Conv2d = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1: nn.BatchNorm2d = nn.BatchNorm2d(64)
        self.relu: nn.ReLU = nn.ReLU(inplace=True)
        self.maxpool: nn.MaxPool2d = nn.MaxPool2d(3, 2, 1)
        channels, reached, dilation = 64, 4, 1
        for number, count in enumerate(layers, 1):
            width, stride = 32 * 2**number, 1 if number == 1 else 2
            # If dilation replaces the stride of a layer, its first block keeps the previous layer's dilation.
            first, before = stride, dilation
            if reached * stride > output_stride:
                first, dilation = 1, dilation * stride
            reached *= first
            made = [Bottleneck(channels, width, first, before)]
            channels = 4 * width
            made += [Bottleneck(channels, width, 1, dilation) for _ in range(count - 1)]
            setattr(self, f"layer{number}", nn.Sequential(*made))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        third = self.layer3(self.layer2(self.layer1(x)))
        return third, self.layer4(third)
