"""``fwcrf train`` and ``fwcrf eval`` from end to end."""

import json

import layouts
import pytest
import torch
from PIL import Image

CONFIG = """
data: {name: splits, root: ROOT, crop: [25, 25]}
model: {name: mobilenetv2, settings: {depth: 0.125}}
crf: {num_steps: 2}
optimizer: {crf_lr: 1.0}
epochs: 2
batch_size: 2
run: {workers: 0}
"""


@pytest.fixture
def config(tmp_path, num_threads):
    num_threads(1)
    root = layouts.splits(tmp_path / "data", size=(18, 24))
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.replace("ROOT", str(root)))
    return path


def test_train_then_evaluate(fwcrf_command, config, tmp_path):
    run, output = tmp_path / "run", tmp_path / "scores"
    status, out, err = fwcrf_command("train", config, "-o", run, "--set", "epochs=1")
    assert (status, out[:8]) == (0, "mean IoU"), err
    assert "epoch 1: mean IoU" in err
    status, out, err = fwcrf_command("train", config, "-o", run, "--set", "epochs=1")
    assert status == 0 and "going on after step 2 of 2" in err
    status, _, err = fwcrf_command("train", config, "-o", run)
    assert status == 1 and "other settings (epochs)" in err

    asked = ["--trimap", 2, "--boundary", "--subset", "vehicles=car", "--flip", "--scale", 1, "--scale", 0.75]
    status, out, err = fwcrf_command("eval", run, "-o", output, *asked)
    assert status == 0 and out.startswith("mean IoU"), err
    report = json.loads((output / "scores.json").read_text())
    assert report["images"] == 4 and report["settings"]["scales"] == [1, 0.75]
    assert report["mean_iou_vehicles"] == report["iou"]["car"] and "2" in report["trimap_mean_iou"]
    with Image.open(output / "labels" / "0.png") as opened:
        assert (opened.mode, opened.size) == ("P", (24, 18))

    status, _, err = fwcrf_command("eval", run, "-o", tmp_path / "again", "--labels", output / "labels")
    assert status == 0, err
    again = json.loads((tmp_path / "again" / "scores.json").read_text())
    assert again["confusion"] == report["confusion"]


def test_what_is_trained_is_what_is_evaluated(fwcrf_command, config, tmp_path):
    _, out, _ = fwcrf_command("train", config, "-o", tmp_path / "run")
    for more, expected in (((), out.strip()), (("--weights", "best.pt"), None), (("--steps", 0), None)):
        status, said, err = fwcrf_command("eval", tmp_path / "run", "-o", tmp_path / "scores", *more)
        assert status == 0, err
        assert expected is None or said.startswith(expected)
    without, at_zero = tmp_path / "without", tmp_path / "scores"
    assert fwcrf_command("eval", tmp_path / "run", "-o", without, "--no-crf")[0] == 0
    reports = [json.loads((folder / "scores.json").read_text())["confusion"] for folder in (without, at_zero)]
    assert reports[0] == reports[1]


def test_a_config_is_evaluated_by_the_weights_it_names(fwcrf_command, config, tmp_path):
    fwcrf_command("train", config, "-o", tmp_path / "run", "--set", "crf=null", "--set", "epochs=1")
    weights = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert not any(name.startswith("crf") for name in weights)
    status, _, err = fwcrf_command(
        "eval", config, "-o", tmp_path / "scores", "--set", f"model.weights={tmp_path / 'run' / 'model.pt'}",
        "--set", "crf.noise=0", "--split", "train",
    )  # fmt: skip
    assert status == 0, err
    report = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert report["settings"]["split"] == "train"


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["train", "joint-vco", "-o", "OUT"], 1, "joint-vco cannot be read"),
    (["train", "CONFIG", "-o", "OUT", "--set", "crf.solvr=mf"], 2, "did you mean solver?"),
    (["train", "CONFIG", "-o", "OUT", "--set", "data.root=nowhere"], 1, "train.txt cannot be read"),
    (["train", "CONFIG"], 2, "Missing option"),
    (["eval", "CONFIG", "-o", "OUT", "--subset", "cars"], 2, "expected NAME=CLASS"),
    (["eval", "CONFIG", "-o", "OUT", "--subset", "a=boat"], 2, "there is no class 'boat'"),
    (["eval", "CONFIG", "-o", "OUT", "--set", "crf=null", "--steps", "3"], 2, "crf is None; expected"),
    (["eval", "CONFIG", "-o", "OUT", "--labels", "OUT"], 1, "has no label map for 4 of 4 images"),
])  # fmt: skip
def test_what_goes_wrong_is_said(fwcrf_command, config, tmp_path, arguments, status, said):
    places = {"CONFIG": config, "OUT": tmp_path / "out"}
    found, _, err = fwcrf_command(*(places.get(a, a) for a in arguments))
    assert found == status and said in err and "Traceback" not in err
