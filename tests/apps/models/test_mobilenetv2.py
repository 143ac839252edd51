"""The small network: the published weights give the published scores, and it can be trained."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from shared_data import ROOT, needs

from fwcrf.apps.models import DeepLabv3MobileNetV2, mobilenetv2
from fwcrf.apps.models.depthwise import DilatedDepthwise

WEIGHTS = ROOT / "weights" / "deeplabv3_mnv2_dm05_voc_trainaug.safetensors"
pytest.importorskip("safetensors", reason="the weights are in a safetensors file: pip install 'fwcrf[train]'")


@pytest.mark.data
@needs("weights", "voc2012")
def test_published_weights_give_the_published_logits():
    from PIL import Image

    net = mobilenetv2.published(WEIGHTS, canvas=513).eval()
    names = (ROOT / "voc2012" / "val.txt").read_text().split()
    for name in names[::75]:
        with Image.open(ROOT / "voc2012" / "val" / "images" / f"{name}.jpg") as opened:
            image = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)[None]
        expected = np.load(ROOT / "voc2012" / "val" / "logits_deeplabv3" / f"{name}.npz")["logits"]
        with torch.no_grad():
            scores = net.scores(image / 127.5 - 1)[0]
        # They were rounded to 1/16.
        np.testing.assert_allclose(scores, expected.astype(np.float32), atol=0.04)


@pytest.mark.data
@needs("weights")
def test_another_list_of_layers_is_refused(tmp_path):
    shutil.copy(WEIGHTS, tmp_path / "net.safetensors")
    listed = json.loads(WEIGHTS.with_suffix(".json").read_text())
    listed["layers"][4]["depthwise"]["stride"] = 1
    (tmp_path / "net.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match=r"block 3 .* expected .*'stride': 2"):
        mobilenetv2.published(tmp_path / "net.safetensors")


def test_blocks_of_the_whole_depth():
    """Channels and dilations of the paper's table, at output stride 8."""
    groups = [(16, 1), (24, 2), (32, 3), (64, 4), (96, 3), (160, 3), (320, 1)]
    assert [b.out for b in mobilenetv2.blocks(1.0)] == [out for out, count in groups for _ in range(count)]
    assert [b.dilation for b in mobilenetv2.blocks(1.0)] == [1] * 7 + [2] * 7 + [4] * 3
    assert np.prod([b.stride for b in mobilenetv2.blocks(1.0)]) == 4


@pytest.mark.parametrize("size", [(65, 65), (64, 70), (1, 9)])
def test_any_size_comes_back(size):
    net = DeepLabv3MobileNetV2(3).eval()
    assert net(torch.zeros(2, 3, *size)).shape == (2, 3, *size)
    assert net.scores(torch.zeros(1, 3, *size)).shape[-1] == -(-(size[1] - 1) // 8) + 1


def test_a_canvas_is_zero_padding():
    net = DeepLabv3MobileNetV2(3, canvas=65).eval()
    x = torch.randn(1, 3, 40, 51, generator=torch.Generator().manual_seed(0))
    padded = F.pad(x, (0, 14, 0, 25))
    with torch.no_grad():
        torch.testing.assert_close(net(x), net(padded)[..., :40, :51])


@pytest.mark.parametrize("dilation", [1, 2, 4])
def test_dilated_depthwise_has_the_gradients_of_a_convolution(dilation):
    torch.manual_seed(dilation)
    conv = DilatedDepthwise(3, dilation).double()
    x = torch.randn(2, 3, 7, 9, dtype=torch.float64, requires_grad=True)
    plain = F.conv2d(x, conv.weight, padding=dilation, dilation=dilation, groups=3)
    torch.testing.assert_close(conv(x), plain)
    v = torch.randn_like(plain)
    ours = torch.autograd.grad(conv(x), (x, conv.weight), v)
    for one, other in zip(ours, torch.autograd.grad(plain, (x, conv.weight), v), strict=True):
        torch.testing.assert_close(one, other)
