"""The large networks, made small: shapes, gradients and what differs while training."""

from __future__ import annotations

import pytest
import torch

from fwcrf.apps.models import DeepLabv3PlusXception65, DeepLabv3ResNet101
from fwcrf.apps.models.deeplabv3 import ASPP
from fwcrf.apps.models.xception import Flow

SMALL = (
    Flow((8, 8, 8), 2),
    Flow((8, 8, 8), 2),
    Flow((8, 8, 8), 2),
    Flow((8, 16, 16), 2),
    Flow((8, 8, 8), skip=False),
)


@pytest.mark.parametrize("output_stride", [8, 16])
@pytest.mark.parametrize("make", [
    lambda stride: DeepLabv3ResNet101(3, output_stride=stride, layers=(1, 1, 1, 1)),
    lambda stride: DeepLabv3PlusXception65(3, output_stride=stride, flows=SMALL),
], ids=["resnet", "xception"])  # fmt: skip
def test_logits_at_the_size_of_the_image(make, output_stride):
    torch.manual_seed(0)
    net = make(output_stride)
    out = net(torch.randn(2, 3, 33, 49))
    assert out.shape == (2, 3, 33, 49)
    out.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    last = net.backbone(torch.randn(1, 3, 33, 49))[1]
    assert last.shape[-2:] == (32 // output_stride + 1, 48 // output_stride + 1)


def test_the_auxiliary_classifier_speaks_while_training():
    net = DeepLabv3ResNet101(3, auxiliary=True, layers=(1, 1, 1, 1))
    x = torch.randn(2, 3, 17, 17)
    assert {name: value.shape for name, value in net(x).items()} == dict.fromkeys(
        ("out", "aux"), (2, 3, 17, 17)
    )
    assert net.eval()(x).shape == (2, 3, 17, 17)


def test_pooling_is_broadcast_as_interpolation_would():
    aspp = ASPP(4, (1, 2, 3), out=2).eval()
    x = torch.randn(1, 4, 5, 6)
    pooled = torch.nn.functional.interpolate(aspp.convs[-1](x), size=(5, 6), mode="bilinear")
    expected = aspp.project(torch.cat([*(conv(x) for conv in list(aspp.convs)[:-1]), pooled], 1))
    torch.testing.assert_close(aspp(x), expected)


def test_other_strides_are_refused():
    with pytest.raises(ValueError, match="output_stride=4; expected 8 or 16"):
        DeepLabv3PlusXception65(output_stride=4)
    with pytest.raises(ValueError, match="output_stride=32; expected 8 or 16"):
        DeepLabv3ResNet101(output_stride=32)
