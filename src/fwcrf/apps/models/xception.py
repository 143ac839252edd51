"""DeepLab's variant of Xception-65 without classifier; names as in timm's ``xception65``.

Strided separable convolutions replace all pooling, and a batch norm also follows each depthwise convolution.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

EPS = 1e-3


@dataclass(frozen=True)
class Flow:
    """A block of three separable convolutions, the last with the stride."""

    out: tuple[int, int, int]
    stride: int = 1
    skip: bool = True  # False for the exit block, whose ReLUs follow the convolutions


FLOWS_65 = (
    Flow((128, 128, 128), 2),
    Flow((256, 256, 256), 2),
    Flow((728, 728, 728), 2),
    *[Flow((728, 728, 728))] * 16,
    Flow((728, 1024, 1024), 2),
    Flow((1536, 1536, 2048), skip=False),
)


class SeparableConv(nn.Module):
    """A depthwise 3x3 and a pointwise convolution, each with batch norm and, if ``relu``, a ReLU."""

    def __init__(
        self, channels: int, out: int, stride: int = 1, dilation: int = 1, *, relu: bool, eps: float = EPS
    ) -> None:
        super().__init__()
        self.conv_dw: nn.Conv2d = nn.Conv2d(
            channels, channels, 3, stride, dilation, dilation, groups=channels, bias=False
        )
        self.bn_dw: nn.BatchNorm2d = nn.BatchNorm2d(channels, eps=eps)
        self.conv_pw: nn.Conv2d = nn.Conv2d(channels, out, 1, bias=False)
        self.bn_pw: nn.BatchNorm2d = nn.BatchNorm2d(out, eps=eps)
        self.act: nn.Module = nn.ReLU(inplace=True) if relu else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn_pw(self.conv_pw(self.act(self.bn_dw(self.conv_dw(x))))))


class ConvBN(nn.Sequential):
    """A convolution, batch norm and, if ``relu``, a ReLU."""

    def __init__(
        self, channels: int, out: int, kernel: int = 1, stride: int = 1, *, relu: bool, eps: float = EPS
    ) -> None:
        super().__init__()
        self.conv: nn.Conv2d = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        self.bn: nn.BatchNorm2d = nn.BatchNorm2d(out, eps=eps)
        if relu:
            self.act: nn.ReLU = nn.ReLU(inplace=True)


class Module(nn.Module):
    """Three separable convolutions with a shortcut around them, if ``flow.skip``."""

    def __init__(self, channels: int, flow: Flow, stride: int, dilation: int) -> None:
        super().__init__()
        self.shortcut: ConvBN | None = None
        if flow.skip and (stride > 1 or channels != flow.out[-1]):
            self.shortcut = ConvBN(channels, flow.out[-1], stride=stride, relu=False)
        self.skip: bool = flow.skip
        self.stack: nn.ModuleDict = nn.ModuleDict()
        before = channels
        for number, out in enumerate(flow.out, 1):
            last = stride if number == 3 else 1
            self.stack[f"conv{number}"] = SeparableConv(before, out, last, dilation, relu=not flow.skip)
            before = out

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and the output of the second separable convolution."""
        one, two, three = self.stack.values()
        if not self.skip:
            second = two(one(x))
            return three(second), second
        # Not in place: the shortcut and the decoder read the values before the ReLU.
        second = two(one(x.relu()).relu())
        return three(second.relu()) + (x if self.shortcut is None else self.shortcut(x)), second


class Xception(nn.Module):
    """The decoder's input (256 channels at stride 4) and the last 2048 channels, for ``(B, 3, H, W)``."""

    def __init__(self, output_stride: int = 16, flows: tuple[Flow, ...] = FLOWS_65) -> None:
        super().__init__()
        if output_stride not in (8, 16, 32):
            raise ValueError(f"output_stride={output_stride!r}; expected 8, 16 or 32.")
        self.stem: nn.Sequential = nn.Sequential(ConvBN(3, 32, 3, 2, relu=True), ConvBN(32, 64, 3, relu=True))
        self.blocks: nn.Sequential = nn.Sequential()
        channels, reached, dilation = 64, 2, 1
        for flow in flows:
            stride = flow.stride if reached * flow.stride <= output_stride else 1
            self.blocks.append(Module(channels, flow, stride, dilation))
            reached *= stride
            dilation *= flow.stride // stride
            channels = flow.out[-1]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        early = None
        for number, block in enumerate(self.blocks):
            x, second = block(x)
            if number == 1:
                early = second
        assert early is not None
        return early, x
