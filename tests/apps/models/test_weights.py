"""State dicts find their network, or the error says why not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fwcrf.apps.files import FileError
from fwcrf.apps.models import load, read_state


def net(classes=3):
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, classes, 1))


@pytest.mark.parametrize("wrap", [
    lambda state: state,
    lambda state: {"epoch": 3, "state_dict": state},
    lambda state: {"model": {f"module.{name}": value for name, value in state.items()}},
])  # fmt: skip
def test_wrapped_or_not(wrap, tmp_path):
    torch.manual_seed(0)
    source, target = net(), net()
    torch.save(wrap(source.state_dict()), tmp_path / "net.pth")
    load(target, read_state(tmp_path / "net.pth"))
    for one, other in zip(source.state_dict().values(), target.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(net().state_dict(), tmp_path / "net.safetensors")
    load(net(), read_state(tmp_path / "net.safetensors"))


def test_code_in_a_file_is_not_run(tmp_path):
    torch.save(net(), tmp_path / "net.pth")
    with pytest.raises(FileError, match="cannot be read as tensors"):
        read_state(tmp_path / "net.pth")


def test_a_classifier_for_other_classes_is_left():
    source, target = net(5), net(3)
    before = target[2].weight.clone()
    with pytest.raises(
        ValueError, match=r"2.weight has shape \(5, 4, 1, 1\); expected \(3, 4, 1, 1\).*leave=\('2',\)"
    ):
        load(target, source.state_dict())
    load(target, source.state_dict(), leave=("2",))
    assert torch.equal(target[2].weight, before)
    assert torch.equal(target[0].weight, source[0].weight)


def test_counters_of_batch_norm_may_be_absent():
    state = {name: value for name, value in net().state_dict().items() if "tracked" not in name}
    load(net(), state)


def test_names_that_do_not_fit():
    state = net().state_dict()
    state["0.weigth"] = state.pop("0.weight")
    with pytest.raises(
        ValueError, match=r"1 missing, the first '0.weight' \(there is '0.weigth'\); 1 not known"
    ):
        load(net(), state)
