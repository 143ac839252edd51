"""Configs: read in full, and refused with a reason."""

from __future__ import annotations

import pytest

from fwcrf import DenseCRF
from fwcrf.apps.files import FileError
from fwcrf.apps.training import Config, build, read_config
from fwcrf.apps.training.config import differences, names, write_config
from fwcrf.kernels import Bilateral, Spatial

LEAST = {"data": {"name": "voc", "root": "."}, "model": {"name": "resnet101"}}


def changed(**sections):
    return {name: {**LEAST.get(name, {}), **values} if isinstance(values, dict) else values
            for name, values in {**LEAST, **sections}.items()}  # fmt: skip


@pytest.mark.parametrize("name", names())
def test_those_that_come_along(name):
    config = read_config(name)
    if config.crf is not None:
        assert build.crf(config.crf, 3).num_steps == 5
    augmented = ((0.5, 2.0), 0.5) if name != "joint-camvid" else ((1.0, 1.0), 0.0)  # as it was measured
    assert (config.data.scale, config.data.flip) == augmented and config.optimizer.power == 0.9


def test_a_config_with_a_crf_has_the_measured_recipe():
    """The optimizer's defaults follow from the CRF, unless the config names an optimizer."""
    joint = Config.of(changed(crf={}))
    crf = build.crf(joint.crf, 5)
    assert {name for name, _ in crf.named_parameters()} == {"weights", "log_temperature"}
    assert crf.weights.shape == (2, 5) and crf.skip == 0.5
    assert (joint.optimizer.name, joint.optimizer.cnn_lr, joint.optimizer.crf_lr) == ("adam", 3e-5, 0.02)
    assert Config.of(changed(crf={}, optimizer={"crf_lr": 0.5})).optimizer.cnn_lr == 3e-5
    alone, named = Config.of(changed()), Config.of(changed(crf={}, optimizer={"name": "sgd"}))
    assert (alone.optimizer.name, alone.optimizer.cnn_lr) == ("sgd", 0.001)
    assert (named.optimizer.cnn_lr, named.optimizer.crf_lr) == (0.001, 0.01)
    # The packaged config of CamVid states the defaults.
    camvid = read_config("joint-camvid")
    assert camvid.optimizer == joint.optimizer
    assert (camvid.crf.learnable, camvid.crf.weights) == (joint.crf.learnable, joint.crf.weights)


def test_the_papers_three_phases():
    pretrain, finetune, joint = (read_config(name) for name in ("pretrain", "finetune-voc", "joint-voc"))
    assert [c.optimizer.cnn_lr for c in (pretrain, finetune, joint)] == [0.01, 0.001, 0.0001]
    assert [c.epochs for c in (pretrain, finetune, joint)] == [50, 50, 20]
    assert {c.batch_size for c in (pretrain, finetune, joint)} == {16}
    assert {c.data.crop for c in (pretrain, finetune, joint)} == {(513, 513)}
    assert [c.crf is None for c in (pretrain, finetune, joint)] == [True, True, False]
    city = read_config("joint-cityscapes")
    assert (city.data.crop, city.epochs) == ((769, 769), 100)
    crf = build.crf(joint.crf, 21)
    assert sum(p.numel() for p in crf.parameters()) == 1323  # as the paper counts
    assert crf.skip == 0.5
    assert {c.optimizer.name for c in (pretrain, finetune, joint, city)} == {"sgd"}


@pytest.mark.parametrize(("solver", "skip"), [("mf", 0.0), ("l2fw", 0.5), ("efw", 0.5), ("pgd", 0.5)])
def test_a_skip_except_for_mean_field(solver, skip):
    crf = build.crf(Config.of(changed(crf={"solver": solver})).crf, 3)
    assert isinstance(crf, DenseCRF) and crf.skip == skip
    assert build.crf(Config.of(changed(crf={"solver": solver, "skip": 0.25})).crf, 3).skip == 0.25


def test_settings_reach_the_solver():
    crf = build.crf(
        Config.of(changed(crf={"solver": "efw", "settings": {"weight": "7e-1", "step": 0.5}})).crf, 3
    )
    assert crf.lambda_ == pytest.approx(0.7) and crf.steps.tolist() == [0.5] * 5


def test_a_tuned_start_can_be_written():
    """Kernels as ``fwcrf tune`` writes them, with their weights."""
    kernels = [
        {"kind": "spatial", "xy": 3, "weight": 0.3},
        {"kind": "bilateral", "xy": 80, "color": 6, "weight": 2.4},
    ]
    settings = {"kernels": kernels, "temperature": 1.5, "bias": 0.1, "balance": 0.3, "weights": "scalar"}
    learnable = ["weights", "temperature", "bias"]
    config = Config.of(changed(crf={**settings, "learnable": learnable}))
    crf = build.crf(config.crf, 3)
    assert crf.kernels == (Spatial(3, weight=0.3), Bilateral(80, 6, weight=2.4))
    assert crf.weights.tolist() == pytest.approx([0.3, 2.4])
    assert crf.temperature.item() == pytest.approx(1.5) and crf.bias.tolist() == pytest.approx([0.1] * 3)
    assert crf.balance == 0.3
    assert Config.of(config.mapping()) == config


@pytest.mark.parametrize(("values", "match"), [
    (changed(crf={"kernels": [{"kind": "gaussian"}]}), r"crf: kernel .*expected kind: bilateral, or kind"),
    (changed(crf={"kernels": [{"kind": "spatial", "xy": -1}]}), r"xy -1; expected positive numbers"),
    (changed(crf={"penalty": -1}), r"crf.penalty is -1.0; expected a number of 0 or more"),
    (changed(crf={"penalty": 1, "learnable": []}), r"crf.learnable is empty"),
    (changed(loss={"lovasz": -1}), r"loss.lovasz is -1.0; expected a number of 0 or more"),
    (changed(loss={"boundary": float("inf")}), r"loss.boundary is inf; expected a number of 0 or more"),
    (changed(loss={"width": 0}), r"loss.width is 0.0; expected a positive number of pixels"),
    (changed(loss={"dice": 1}), r"loss.dice is not known; expected any of loss.lovasz"),
    (changed(crf={}, optimizer={"crf_lrs": {"skip": 1}}), r"'skip', which is not learned; .*weights, temper"),
    (changed(crf={}, optimizer={"crf_lrs": {"weights": "fast"}}), r"crf_lrs.weights is 'fast'; expected a"),
    (changed(optimizer={"crf_lrs": {"skip": 1}}), r"names of crf.learnable \(empty\)"),
    (changed(optimizer={"crf_rl": 1}), r"optimizer.crf_rl is not known; .*; did you mean crf_lr\?"),
    (changed(epoch=3), r"config: epoch is not known; .*; did you mean epochs\?"),
    (changed(model={"name": "resnet11"}), r"model.name is 'resnet11'; .* did you mean resnet101\?"),
    (changed(data={"crop": 513}), r"data.crop is 513; expected a list of 2"),
    (changed(data={"crop": ["a", 3]}), r"data.crop is 'a'; expected a whole number"),
    (changed(data={"flip": "often"}), r"data.flip is 'often'; expected a number"),
    (changed(batch_size=True), r"batch_size is True; expected a whole number"),
    (changed(batch_size=0), r"batch_size is 0; expected at least 1"),
    (changed(crf=[1]), r"crf is \[1\]; expected names and values"),
    ({"model": {"name": "resnet101"}}, r"config: data is missing"),
    (changed(run={"device": 3}), r"run.device is 3; expected text"),
])  # fmt: skip
def test_what_is_wrong_is_named(values, match):
    with pytest.raises(FileError, match=match):
        Config.of(values)


def test_files_and_changes(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "data: {name: splits, root: here}\nmodel: {name: mobilenetv2}\noptimizer: {cnn_lr: 1e-3}\n"
    )
    config = read_config(path, ["crf.solver=mf", "data.crop=[32, 40]", "optimizer.weight_decay=1e-5"])
    assert config.optimizer.cnn_lr == 0.001 and config.optimizer.weight_decay == 1e-5
    assert config.crf.solver == "mf" and config.data.crop == (32, 40)
    write_config(tmp_path / "all.yaml", config)
    assert read_config(tmp_path / "all.yaml") == config
    assert differences(config.mapping(), read_config(path).mapping()) == [
        "data.crop",
        "crf",
        "optimizer.name",
        "optimizer.crf_lr",
        "optimizer.weight_decay",
    ]


@pytest.mark.parametrize(("text", "changes", "match"), [
    ("a: [", (), "is not YAML"),
    ("- 3", (), "holds a list; expected names and values"),
    ("!!python/object/apply:os.system [ls]", (), "is not YAML"),
    ("data: 3", ("data",), "'data' has no '='; expected NAME=VALUE"),
    ("data: 3", ("data.name=voc",), "data is 3; expected settings in it"),
])  # fmt: skip
def test_files_that_cannot_be_used(tmp_path, text, changes, match):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(FileError, match=match):
        read_config(tmp_path / "bad.yaml", changes)


def test_a_name_that_is_neither_a_file_nor_comes_along():
    with pytest.raises(FileError, match=r"nothing cannot be read: .* Packaged configs: .*joint-voc"):
        read_config("nothing")
