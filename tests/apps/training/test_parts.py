"""Schedule, groups, order and logs, each on its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fwcrf import DenseCRF
from fwcrf.apps.models import CNNCRF, DeepLabv3MobileNetV2
from fwcrf.apps.training.batch_norm import training_mode
from fwcrf.apps.training.config import Optimizer
from fwcrf.apps.training.log import Table
from fwcrf.apps.training.optimizers import frozen, optimizer, parameter_groups, set_learning_rates
from fwcrf.apps.training.order import Order, Share
from fwcrf.apps.training.schedule import poly


def test_poly_is_that_of_torch():
    parameter = nn.Parameter(torch.zeros(1))
    ours = torch.optim.SGD([parameter], lr=0.3)
    schedule = torch.optim.lr_scheduler.PolynomialLR(ours, total_iters=20, power=0.9)
    for step in range(20):
        assert ours.param_groups[0]["lr"] == pytest.approx(0.3 * poly(step, 20, 0.9))
        ours.step()
        schedule.step()


def small():
    torch.manual_seed(0)
    net = DeepLabv3MobileNetV2(3, depth=0.125)
    return CNNCRF(net, DenseCRF(3, learnable=("weights", "compatibility"), weights="full"))


def test_every_parameter_is_in_one_group():
    model = small()
    groups = parameter_groups(model, Optimizer(cnn_lr=0.5, crf_lr=0.25, weight_decay=0.125))
    assert [(g["name"], g["lr"], g["weight_decay"]) for g in groups] == [
        ("cnn", 0.5, 0.125), ("cnn-vectors", 0.5, 0.0), ("crf", 0.25, 0.0)
    ]  # fmt: skip
    listed = [id(p) for g in groups for p in g["params"]]
    assert sorted(listed) == sorted(id(p) for p in model.parameters())


def test_parameters_of_the_crf_may_have_their_own_rates():
    model = small()
    groups = parameter_groups(model, Optimizer(crf_lr=0.25, crf_lrs={"compatibility": 0.5}))[2:]
    assert [(g["name"], g["lr"], len(g["params"])) for g in groups] == [
        ("crf", 0.25, 1), ("crf-compatibility", 0.5, 1)
    ]  # fmt: skip
    assert groups[1]["params"][0] is model.crf.compatibility
    groups = parameter_groups(model, Optimizer(crf_lrs={"compatibility": 0.5, "weights": 0.1}))
    assert [g["name"] for g in groups][2:] == ["crf-compatibility", "crf-weights"]


def test_what_is_frozen_is_in_no_group_and_keeps_its_statistics():
    model = small()
    frozen(model.cnn, ("backbone",))
    listed = {id(p) for g in parameter_groups(model, Optimizer()) for p in g["params"]}
    assert not listed & {id(p) for p in model.cnn.backbone.parameters()}
    assert listed >= {id(p) for p in model.cnn.logits.parameters()}
    training_mode(model, frozen_statistics=False)
    assert not model.cnn.backbone.conv.bn.training and model.cnn.aspp0.bn.training
    training_mode(model, frozen_statistics=True)
    assert not model.cnn.aspp0.bn.training and model.cnn.training
    with pytest.raises(
        ValueError, match=r"no module 'head' to freeze; expected one of backbone, image_pooling"
    ):
        frozen(model.cnn, ("head",))


def test_nothing_to_learn_is_an_error():
    model = CNNCRF(nn.Conv2d(3, 2, 1).requires_grad_(False), DenseCRF(2))
    with pytest.raises(ValueError, match="no parameter is trainable"):
        parameter_groups(model, Optimizer())


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_rates_are_shares_of_the_first(name):
    made = optimizer(small(), Optimizer(name=name, cnn_lr=0.5, crf_lr=0.25))
    assert set_learning_rates(made, 0.5) == {"cnn": 0.25, "cnn-vectors": 0.25, "crf": 0.125}
    assert set_learning_rates(made, 0.1) == {"cnn": 0.05, "cnn-vectors": 0.05, "crf": 0.025}


@given(st.integers(1, 30), st.integers(1, 8), st.integers(0, 5))
def test_an_epoch_sees_each_image_at_most_once(num_images, batch_size, seed):
    if batch_size > num_images:
        return
    order = Order(num_images, batch_size, seed)
    for epoch in range(3):
        keys = [
            key
            for step in range(order.steps_per_epoch)
            for key in order.batch(epoch * order.steps_per_epoch + step)
        ]
        assert {e for e, _ in keys} == {epoch}
        assert len({i for _, i in keys}) == len(keys) == order.steps_per_epoch * batch_size
        assert {i for _, i in keys} <= set(range(num_images))


def test_epochs_and_seeds_differ():
    order = Order(20, 20, 0)
    assert [i for _, i in order.batch(0)] != [i for _, i in order.batch(1)]
    assert order.batch(0) != Order(20, 20, 1).batch(0)


@pytest.mark.parametrize("first", [0, 3])
def test_processes_share_a_batch(first):
    order = Order(10, 4, 7)
    whole = list(Share(order, first, 6))
    parts = [list(Share(order, first, 6, rank, 2)) for rank in (0, 1)]
    assert [a + b for a, b in zip(*parts, strict=True)] == whole == [order.batch(s) for s in range(first, 6)]
    with pytest.raises(ValueError, match="batch_size is 4 in total for 3 processes"):
        Share(order, 0, 1, 0, 3)
    with pytest.raises(ValueError, match="batch_size is 11, but there are 10 images"):
        Order(10, 11, 0)


def test_rows_after_the_step_are_taken_back(tmp_path):
    path = tmp_path / "t.csv"
    table = Table(path, ("loss", "rate"), 0)
    values = np.random.default_rng(0).random(5)
    for step, value in enumerate(values, 1):
        table.add(step, {"loss": float(value), "rate": None})
    table.close()
    whole = path.read_text()
    path.write_text(whole[:-3])  # cut off in the middle of a row
    Table(path, ("loss", "rate"), 3).close()
    assert path.read_text() == "".join(whole.splitlines(keepends=True)[:4])
    assert [float(row.split(",")[1]) for row in path.read_text().splitlines()[1:]] == values[:3].tolist()
