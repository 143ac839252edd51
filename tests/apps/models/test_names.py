"""Names, shapes and geometry are those of the published networks."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from torch import nn

from fwcrf.apps.models import DeepLabv3PlusXception65, DeepLabv3ResNet101, deeplabv3plus
from fwcrf.apps.models.xception import Xception


def digest(lines) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def names(net: nn.Module) -> str:
    return digest(f"{name} {tuple(value.shape)}" for name, value in net.state_dict().items())


def geometry(net: nn.Module) -> str:
    convs = ((name, m) for name, m in net.named_modules() if isinstance(m, nn.Conv2d))
    return digest(f"{name} {m.stride} {m.padding} {m.dilation} {m.groups}" for name, m in convs)


# Taken from torchvision 0.28.0, deeplabv3_resnet101, with and without its auxiliary classifier.
@pytest.mark.parametrize(
    ("auxiliary", "count", "of_names", "of_geometry"),
    [
        (True, 676, "7d712749fb30c3c2", "e7863e41d6a42b47"),
        (False, 668, "91387bdbe47b0ac2", "e136c8d9ae6a4116"),
    ],
)
def test_deeplabv3_is_that_of_torchvision(auxiliary, count, of_names, of_geometry):
    with torch.device("meta"):
        net = DeepLabv3ResNet101(auxiliary=auxiliary)
    assert (len(net.state_dict()), names(net), geometry(net)) == (count, of_names, of_geometry)


# Taken from timm 1.0.30, xception65 with output_stride=16.
def test_xception_is_that_of_timm():
    with torch.device("meta"):
        net = Xception(16)
    assert (len(net.state_dict()), names(net), geometry(net)) == (792, "d405156a1f89488e", "8ea8685e205c32ec")


def google_variables(num_classes: int = 21):
    """Names and shapes of Google's deeplabv3_pascal_train_aug checkpoint."""

    def normed(name, channels):
        for part in ("gamma", "beta", "moving_mean", "moving_variance"):
            yield f"{name}/BatchNorm/{part}", (channels,)

    def conv(name, kernel, channels, out):
        yield f"{name}/weights", (kernel, kernel, channels, out)
        yield from normed(name, out)

    def separable(name, channels, out):
        yield f"{name}_depthwise/depthwise_weights", (3, 3, channels, 1)
        yield from normed(f"{name}_depthwise", channels)
        yield from conv(f"{name}_pointwise", 1, channels, out)

    def module(name, channels, widths, shortcut):
        name = f"xception_65/{name}/xception_module"
        if shortcut:
            yield from conv(f"{name}/shortcut", 1, channels, widths[-1])
        for number, out in enumerate(widths, 1):
            yield from separable(f"{name}/separable_conv{number}", channels, out)
            channels = out

    yield from conv("xception_65/entry_flow/conv1_1", 3, 3, 32)
    yield from conv("xception_65/entry_flow/conv1_2", 3, 32, 64)
    for number, (channels, out) in enumerate([(64, 128), (128, 256), (256, 728)], 1):
        yield from module(f"entry_flow/block{number}/unit_1", channels, [out] * 3, True)
    for unit in range(1, 17):
        yield from module(f"middle_flow/block1/unit_{unit}", 728, [728] * 3, False)
    yield from module("exit_flow/block1/unit_1", 728, [728, 1024, 1024], True)
    yield from module("exit_flow/block2/unit_1", 1024, [1536, 1536, 2048], False)
    yield from conv("image_pooling", 1, 2048, 256)
    yield from conv("aspp0", 1, 2048, 256)
    for number in (1, 2, 3):
        yield from separable(f"aspp{number}", 2048, 256)
    yield from conv("concat_projection", 1, 1280, 256)
    yield from conv("decoder/feature_projection0", 1, 256, 48)
    yield from separable("decoder/decoder_conv0", 304, 256)
    yield from separable("decoder/decoder_conv1", 256, 256)
    yield "logits/semantic/weights", (1, 1, 256, num_classes)
    yield "logits/semantic/biases", (num_classes,)


def test_every_variable_of_google_has_its_place():
    variables = {name: np.broadcast_to(np.float32(0), shape) for name, shape in google_variables()}
    variables["global_step"] = np.array(3)
    variables["aspp0/weights/Momentum"] = np.zeros(1)
    with torch.device("meta"):
        own = DeepLabv3PlusXception65().state_dict()
    given = deeplabv3plus.from_google(variables)
    assert {n: v.shape for n, v in given.items()} == {
        n: v.shape for n, v in own.items() if not n.endswith("num_batches_tracked")
    }


def test_google_kernels_are_transposed_to_torch():
    kernel = np.arange(3 * 3 * 2 * 5, dtype=np.float32).reshape(3, 3, 2, 5)
    depthwise = np.arange(3 * 3 * 4, dtype=np.float32).reshape(3, 3, 4, 1)
    state = deeplabv3plus.from_google(
        {"xception_65/entry_flow/conv1_2/weights": kernel, "aspp2_depthwise/depthwise_weights": depthwise}
    )
    assert state["backbone.stem.1.conv.weight"][4, 1, 0, 2] == kernel[0, 2, 1, 4]
    assert state["aspp.aspp2.conv_dw.weight"][3, 0, 2, 1] == depthwise[2, 1, 3, 0]
