"""Any network in front of a CRF."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fwcrf import DenseCRF
from fwcrf.apps.models import CNNCRF, IMAGENET, UNIT, Normalization


class Records(nn.Module):
    """Keeps what it was given; answers with two channels at half the size, or with the logits given."""

    def __init__(self, answer=lambda x: x):
        super().__init__()
        self.answer = answer

    def forward(self, *given):
        self.given = given
        return self.answer(given[-1][:, :2, ::2, ::2] if len(given) == 1 else given[-1])


def image(dtype=torch.uint8):
    return torch.randint(0, 256, (2, 3, 8, 10), generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_the_network_sees_it_normalised_and_the_crf_as_it_is(dtype):
    cnn, crf = Records(), Records()
    CNNCRF(cnn, crf, normalization=Normalization((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)))(image(dtype))
    expected = (image().float() - torch.tensor([1.0, 2, 3])[:, None, None]) / torch.tensor([4.0, 5, 6])[
        :, None, None
    ]
    torch.testing.assert_close(cnn.given[0], expected)
    torch.testing.assert_close(crf.given[0], image().float())
    assert crf.given[1].shape == (2, 2, 8, 10)


def test_normalization_is_the_networks_own():
    cnn = Records()
    assert CNNCRF(cnn).mean.flatten().tolist() == pytest.approx(IMAGENET.mean)
    cnn.normalization = UNIT
    assert CNNCRF(cnn).std.flatten().tolist() == [127.5] * 3
    assert not CNNCRF(cnn).state_dict()


def test_a_dict_of_logits_is_taken_like_torchvisions():
    plain, named = CNNCRF(Records()), CNNCRF(Records(lambda x: {"out": x, "aux": -x}))
    torch.testing.assert_close(plain(image()), named(image()))
    assert named.logits(image())["aux"].shape == (2, 2, 8, 10)


def test_without_a_crf_it_is_softmax():
    out = CNNCRF(Records())(image())
    torch.testing.assert_close(out.exp().sum(1), torch.ones(2, 8, 10))


def test_gradients_reach_network_and_crf():
    torch.manual_seed(0)
    model = CNNCRF(nn.Conv2d(3, 2, 3, padding=1), DenseCRF(2, learnable=("weights",), skip=0.5))
    model(image()).square().mean().backward()
    assert all(p.grad.abs().max() > 0 for p in model.parameters())


@pytest.mark.parametrize(("given", "error", "match"), [
    (torch.zeros(3, 8, 8), ValueError, r"shape \(3, 8, 8\); expected \(batch, 3"),
    (torch.zeros(1, 1, 8, 8), ValueError, r"expected \(batch, 3"),
])  # fmt: skip
def test_other_images_are_refused(given, error, match):
    with pytest.raises(error, match=match):
        CNNCRF(Records())(given)


def test_a_network_without_logits_is_named():
    with pytest.raises(TypeError, match="Records returned tuple; expected logits"):
        CNNCRF(Records(lambda x: (x, x)))(image())
