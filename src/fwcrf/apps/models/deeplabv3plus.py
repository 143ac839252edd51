"""DeepLabv3+ with an Xception-65 backbone, as published by Google.

``backbone`` loads the weights of timm's ``xception65``. ``from_google`` converts a TensorFlow checkpoint of
DeepLab's model zoo to a state dict of the full network.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fwcrf.apps.models.normalization import UNIT
from fwcrf.apps.models.xception import FLOWS_65, ConvBN, Flow, SeparableConv, Xception

RATES = {8: (12, 24, 36), 16: (6, 12, 18)}
_EPS = 1e-5  # of the head; the backbone has xception.EPS


class DeepLabv3PlusXception65(nn.Module):
    """Logits ``(B, num_classes, H, W)`` of normalised images ``(B, 3, H, W)``.

    The pyramid and the decoder use separable convolutions. Resizing aligns the corners of the grids, as in
    training with sizes 16 k + 1 (513, 769).
    """

    normalization = UNIT

    def __init__(
        self, num_classes: int = 21, *, output_stride: int = 16, flows: tuple[Flow, ...] = FLOWS_65
    ) -> None:
        super().__init__()
        if output_stride not in RATES:
            raise ValueError(f"output_stride={output_stride!r}; expected 8 or 16.")
        self.backbone: Xception = Xception(output_stride, flows)
        self.aspp: ASPP = ASPP(flows[-1].out[-1], RATES[output_stride])
        self.decoder: Decoder = Decoder(flows[1].out[1])
        self.logits: nn.Conv2d = nn.Conv2d(256, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        early, last = self.backbone(x)
        return _corners(self.logits(self.decoder(self.aspp(last), early)), x)


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: convolutions of several rates and the image mean, projected."""

    def __init__(self, channels: int, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.image_pooling: ConvBN = ConvBN(channels, 256, relu=True, eps=_EPS)
        self.aspp0: ConvBN = ConvBN(channels, 256, relu=True, eps=_EPS)
        self.aspp1: nn.Module
        self.aspp2: nn.Module
        self.aspp3: nn.Module
        self.aspp1, self.aspp2, self.aspp3 = (
            SeparableConv(channels, 256, dilation=rate, relu=True, eps=_EPS) for rate in rates
        )
        self.concat_projection: ConvBN = ConvBN(256 * 5, 256, relu=True, eps=_EPS)
        self.dropout: nn.Dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.image_pooling(x.mean((2, 3), keepdim=True)).expand(-1, -1, *x.shape[-2:])
        branches = [pooled, self.aspp0(x), self.aspp1(x), self.aspp2(x), self.aspp3(x)]
        return self.dropout(self.concat_projection(torch.cat(branches, 1)))


class Decoder(nn.Module):
    """Combines the features with an early layer's, at the resolution of the early layer."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.feature_projection0: ConvBN = ConvBN(channels, 48, relu=True, eps=_EPS)
        self.decoder_conv0: SeparableConv = SeparableConv(256 + 48, 256, relu=True, eps=_EPS)
        self.decoder_conv1: SeparableConv = SeparableConv(256, 256, relu=True, eps=_EPS)

    def forward(self, x: Tensor, early: Tensor) -> Tensor:
        joined = torch.cat([_corners(x, early), self.feature_projection0(early)], 1)
        return self.decoder_conv1(self.decoder_conv0(joined))


def _corners(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=True)


def from_google(variables: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """The state dict of a TensorFlow checkpoint, given as names and arrays of its variables.

    TensorFlow gives ``variables`` as ``{name: reader.get_tensor(name) for name in
    reader.get_variable_to_shape_map()}`` with ``reader = tf.train.load_checkpoint(path)``. Variables of
    training (momenta, averages, the step) are left out.

    >>> kernel = np.zeros((3, 3, 3, 32), np.float32)
    >>> state = from_google({"xception_65/entry_flow/conv1_1/weights": kernel, "global_step": np.array(7)})
    >>> {name: tuple(value.shape) for name, value in state.items()}
    {'backbone.stem.0.conv.weight': (32, 3, 3, 3)}
    """
    state = {}
    for name, value in variables.items():
        if name == "global_step" or name.endswith(("/Momentum", "/ExponentialMovingAverage")):
            continue
        layer, ending = name.rsplit("/", 1)
        state[_module(layer, ending)] = _tensor(value, ending)
    return state


_ENDINGS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_STEM = {"conv1_1": "stem.0", "conv1_2": "stem.1"}
_FIRST_BLOCK = {"entry_flow": 0, "middle_flow": 3, "exit_flow": 19}


def _module(layer: str, ending: str) -> str:
    normed = layer.endswith("/BatchNorm")
    layer = layer.removesuffix("/BatchNorm")
    if layer == "logits/semantic":
        return "logits." + {"weights": "weight", "biases": "bias"}[ending]
    kind = "bn" if normed else "conv"
    last = _ENDINGS[ending] if normed else "weight"
    for suffix, short in (("_depthwise", "_dw"), ("_pointwise", "_pw")):
        if layer.endswith(suffix):
            return f"{_place(layer.removesuffix(suffix))}.{kind}{short}.{last}"
    return f"{_place(layer)}.{kind}.{last}"


def _place(layer: str) -> str:
    parts = layer.split("/")
    if parts[0].startswith("xception_65"):
        flow, part = parts[1], parts[2]
        if part in _STEM:
            return f"backbone.{_STEM[part]}"
        block, unit = int(part.removeprefix("block")), int(parts[3].removeprefix("unit_"))
        number = _FIRST_BLOCK[flow] + (unit if flow == "middle_flow" else block) - 1
        inner = parts[-1].replace("separable_", "stack.")
        return f"backbone.blocks.{number}.{inner}"
    return layer.replace("/", ".") if parts[0] == "decoder" else f"aspp.{layer}"


def _tensor(value: np.ndarray, ending: str) -> Tensor:
    # TensorFlow's order is (height, width, in, out), for depthwise kernels (height, width, channels, 1).
    orders = {"weights": (3, 2, 0, 1), "depthwise_weights": (2, 3, 0, 1)}
    value = np.asarray(value)
    if ending in orders:
        value = value.transpose(orders[ending])
    return torch.from_numpy(np.ascontiguousarray(value, dtype=np.float32))
