"""DeepLabv3 with a MobileNetV2 backbone, as published by Google: small enough to train on a laptop.

::

    image -> conv 3x3 / 2 -> 17 inverted residual blocks, the last ten dilated -> output stride 8
          -> [ global mean -> 1x1 , 1x1 ] -> 1x1 -> logits

Each 3x3 convolution pads by its dilation on both sides, which equals TensorFlow's "SAME" for sizes 8 k + 1.
Other images are padded to the next such size, below and to the right, by 0 after normalization (mid-grey).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fwcrf.apps.files.errors import FileError
from fwcrf.apps.files.safe_json import load_json
from fwcrf.apps.models.depthwise import DilatedDepthwise
from fwcrf.apps.models.normalization import UNIT
from fwcrf.apps.models.resize import from_grid
from fwcrf.apps.models.weights import load, read_state

STRIDE = 8

# Per group of blocks: expansion, channels at depth 1, number of blocks, stride of the first block.
_GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@dataclass(frozen=True)
class Block:
    """An inverted residual block: 1x1 times ``expansion``, depthwise 3x3, 1x1 to ``out`` channels."""

    expansion: int
    out: int
    stride: int
    dilation: int
    residual: bool


def blocks(depth: float = 0.5) -> list[Block]:
    """The 17 blocks. Beyond a total stride of 8, a stride becomes a dilation of the blocks after it.

    >>> sorted({(b.stride, b.dilation) for b in blocks()})
    [(1, 1), (1, 2), (1, 4), (2, 1)]
    """
    found: list[Block] = []
    reached, dilation, channels = 2, 1, int(32 * depth)
    for expansion, at_full_depth, count, first in _GROUPS:
        out = int(at_full_depth * depth)
        for stride in [first] + [1] * (count - 1):
            taken = stride if reached * stride <= STRIDE else 1
            found.append(Block(expansion, out, taken, dilation, stride == 1 and channels == out))
            reached *= taken
            dilation *= stride // taken
            channels = out
    return found


class ConvBN(nn.Sequential):
    """Convolution without bias, batch norm, activation unless None. A dilated convolution is depthwise."""

    def __init__(
        self,
        channels: int,
        out: int,
        kernel: int = 1,
        *,
        stride: int = 1,
        dilation: int = 1,
        depthwise: bool = False,
        eps: float = 1e-3,
        activation: type[nn.Module] | None = nn.ReLU6,
    ) -> None:
        super().__init__()
        if dilation > 1:
            self.conv = DilatedDepthwise(channels, dilation)
        else:
            groups = channels if depthwise else 1
            self.conv: nn.Conv2d = nn.Conv2d(
                channels, out, kernel, stride, kernel // 2, groups=groups, bias=False
            )
        self.bn: nn.BatchNorm2d = nn.BatchNorm2d(out, eps=eps)
        if activation is not None:
            self.activation: nn.Module = activation(inplace=True)


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; added to the input if ``block.residual``."""

    def __init__(self, channels: int, block: Block) -> None:
        super().__init__()
        inner = channels * block.expansion
        self.expand: nn.Module = ConvBN(channels, inner) if block.expansion > 1 else nn.Identity()
        self.depthwise: ConvBN = ConvBN(
            inner, inner, 3, stride=block.stride, dilation=block.dilation, depthwise=True
        )
        self.project: ConvBN = ConvBN(inner, block.out, activation=None)
        self.residual: bool = block.residual

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class MobileNetV2(nn.Sequential):
    """The backbone: features ``(B, 320 depth, h, w)`` of images ``(B, 3, 8 h - 7, 8 w - 7)``."""

    def __init__(self, depth: float = 0.5) -> None:
        super().__init__()
        channels = int(32 * depth)
        self.conv: ConvBN = ConvBN(3, channels, 3, stride=2)
        self.blocks: nn.Sequential = nn.Sequential()
        for block in blocks(depth):
            self.blocks.append(InvertedResidual(channels, block))
            channels = block.out


class DeepLabv3MobileNetV2(nn.Module):
    """Logits ``(B, num_classes, H, W)`` of normalised images ``(B, 3, H, W)``, of any size.

    The global mean of the head includes the padding. ``canvas`` pads every image to at least that many
    pixels per side. 513 gives the scores of the published network. None, for training and for images of about
    the training size, pads only to 8 k + 1.

    >>> DeepLabv3MobileNetV2().eval()(torch.zeros(1, 3, 30, 41)).shape
    torch.Size([1, 21, 30, 41])
    """

    normalization = UNIT

    def __init__(self, num_classes: int = 21, *, depth: float = 0.5, canvas: int | None = None) -> None:
        super().__init__()
        self.canvas = canvas
        channels, eps = int(320 * depth), 1.001e-5
        self.backbone: MobileNetV2 = MobileNetV2(depth)
        self.image_pooling: ConvBN = ConvBN(channels, 256, eps=eps, activation=nn.ReLU)
        self.aspp0: ConvBN = ConvBN(channels, 256, eps=eps, activation=nn.ReLU)
        self.concat_projection: ConvBN = ConvBN(512, 256, eps=eps, activation=nn.ReLU)
        self.logits: nn.Conv2d = nn.Conv2d(256, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return from_grid(self.scores(x), STRIDE, (x.shape[-2], x.shape[-1]))

    def scores(self, x: Tensor) -> Tensor:
        """The logits on the coarse grid of ``ceil((H - 1) / 8) + 1`` rows."""
        return self.head(self.backbone(self.padded(x)), (x.shape[-2], x.shape[-1]))

    def padded(self, x: Tensor) -> Tensor:
        """The input of the backbone: images padded below and to the right."""
        height, width = x.shape[-2:]
        rows, columns = (STRIDE * (max(g, self._least) - 1) + 1 for g in _grid((height, width)))
        return F.pad(x, (0, columns - width, 0, rows - height))

    def head(self, features: Tensor, size: tuple[int, int]) -> Tensor:
        """The logits on the coarse grid of ``ceil((H - 1) / 8) + 1`` rows, from features of the backbone."""
        pooled = self.image_pooling(features.mean((2, 3), keepdim=True)).expand(-1, -1, *features.shape[-2:])
        fused = self.concat_projection(torch.cat([pooled, self.aspp0(features)], 1))
        rows, columns = _grid(size)
        return self.logits(fused)[..., :rows, :columns]

    @property
    def _least(self) -> int:
        return 1 if self.canvas is None else -(-(self.canvas - 1) // STRIDE) + 1


def _grid(size: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the coarse grid of an image."""
    rows, columns = (-(-(length - 1) // STRIDE) + 1 for length in size)
    return rows, columns


def published(path: str | Path, *, canvas: int | None = None) -> DeepLabv3MobileNetV2:
    """The network with weights of a ``.safetensors`` file. The ``.json`` next to it lists the layers.

    Raises if the list differs from this network: the weights belong to another one.
    """
    path = Path(path)
    layers = _layers(path.with_suffix(".json"))
    state = translate(read_state(path))
    net = DeepLabv3MobileNetV2(state["logits.weight"].shape[0], canvas=canvas)
    _compare(layers, net, path)
    load(net, state)
    return net


def _layers(path: Path) -> dict[str, Any]:
    try:
        listed = load_json(path.read_bytes(), str(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}. It lists the layers.") from error
    if not isinstance(listed, dict) or not {"layers", "bn_eps"} <= listed.keys():
        raise FileError(f"{path} does not list layers; expected a mapping with layers and bn_eps.")
    return listed


def translate(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The state dict with this network's names instead of TensorFlow's.

    >>> list(translate({"expanded_conv_2/depthwise.bn_gamma": torch.ones(3)}))
    ['backbone.blocks.2.depthwise.bn.weight']
    """
    return {_translated(name): value for name, value in state.items()}


_ENDINGS = {
    "weight": "conv.weight",
    "bn_gamma": "bn.weight",
    "bn_beta": "bn.bias",
    "bn_mean": "bn.running_mean",
    "bn_var": "bn.running_var",
}


def _translated(name: str) -> str:
    layer, ending = name.rsplit(".", 1)
    if layer == "logits/semantic":
        return f"logits.{ending}"
    if layer == "Conv":
        layer = "backbone.conv"
    elif layer.startswith("expanded_conv"):
        block, part = layer.split("/")
        number = block.removeprefix("expanded_conv").removeprefix("_") or "0"
        layer = f"backbone.blocks.{number}.{part}"
    return f"{layer}.{_ENDINGS[ending]}"


def _compare(listed: dict[str, Any], net: DeepLabv3MobileNetV2, path: Path) -> None:
    depthwise = [layer for layer in listed["layers"] if "block" in layer]
    theirs = [
        (b["expand"], b["out"], b["depthwise"]["stride"], b["depthwise"]["dilation"], b["residual"])
        for b in depthwise
    ]
    ours = [(b.expansion > 1, b.out, b.stride, b.dilation, b.residual) for b in blocks()]
    for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
        if one != other:
            expected = asdict(blocks()[number])
            raise ValueError(f"{path} lists block {number} as {depthwise[number]}; expected {expected}.")
    if len(theirs) != len(ours):
        raise ValueError(f"{path} lists {len(theirs)} blocks; expected {len(ours)}.")
    eps = listed["bn_eps"]
    for name in ("image_pooling", "aspp0", "concat_projection"):
        if abs(eps[name] - getattr(net, name).bn.eps) > 1e-3 * eps[name]:
            raise ValueError(
                f"{path} lists {eps[name]} as the eps of {name}; expected {getattr(net, name).bn.eps}."
            )
