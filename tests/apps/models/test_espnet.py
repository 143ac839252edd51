"""ESPNet: published weights give the stored scores, as far as the images are the same."""

from __future__ import annotations

import pytest
import torch
from shared_data import ROOT, needs

from fwcrf.apps.data.scores import espnet
from fwcrf.apps.models import ESPNet

WEIGHTS = ROOT / "weights" / "espnet_p2q8_camvid.safetensors"
pytest.importorskip("safetensors", reason="the weights are in a safetensors file: pip install 'fwcrf[train]'")


@pytest.mark.data
@needs("weights", "camvid")
def test_published_weights_give_the_stored_scores():
    """The images at hand are JPEG copies, so scores differ: 2 to 3 % of the labels do."""
    net, data = ESPNet.from_file(WEIGHTS), espnet(ROOT / "camvid")
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in net.normalization)
    right = {"network": 0, "stored": 0}
    counted = 0
    for k in range(0, len(data), 3):
        image, truth, stored = data[k]
        with torch.no_grad():
            logits = net(((image - mean) / std)[None])[0, : len(stored)]
        assert (logits.argmax(0) == stored.argmax(0)).float().mean() > 0.96
        assert (logits - stored).abs().mean() < 0.1 * stored.abs().mean()
        valid = truth < len(stored)
        counted += int(valid.sum())
        right["network"] += int((logits.argmax(0) == truth)[valid].sum())
        right["stored"] += int((stored.argmax(0) == truth)[valid].sum())
    assert abs(right["network"] - right["stored"]) < 0.01 * counted


@pytest.mark.parametrize("size", [(64, 80), (61, 75), (8, 8)])
def test_any_size_comes_back(size):
    assert ESPNet(5).eval()(torch.zeros(2, 3, *size)).shape == (2, 5, *size)


def test_channels_that_are_no_classes_are_left_out():
    torch.manual_seed(0)
    whole, cut = ESPNet(6, p=1, q=1).eval(), ESPNet(5, p=1, q=1, extra=1).eval()
    cut.load_state_dict(whole.state_dict())
    image = torch.randn(1, 3, 32, 40)
    with torch.no_grad():
        assert torch.equal(cut(image), whole(image)[:, :5])


def test_every_parameter_has_a_gradient():
    net = ESPNet(10, p=1, q=1)
    net(torch.randn(2, 3, 32, 32)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
