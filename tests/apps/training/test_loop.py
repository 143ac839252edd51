"""Training runs, whole, in parts and continued."""

from __future__ import annotations

import csv
import json
import os
import signal

import pytest
import small_run
import torch

from fwcrf import losses
from fwcrf.apps.files import FileError
from fwcrf.apps.models import read_state
from fwcrf.apps.training import Diverged, Stopped, loop, read_config, train


@pytest.fixture(autouse=True)
def one_thread(num_threads):
    num_threads(1)


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_leaves_its_files_and_learns(tmp_path):
    shown = []
    changes = {
        "epochs": 8,
        "optimizer": {"cnn_lr": 0.2, "weight_decay": 0},
        "model": {"batch_norm": "trained"},
    }
    note = lambda line=None, count=1: shown.append((line, count))  # noqa: E731
    done = small_run.train(tmp_path, "out", note, **changes)
    steps, validations = rows(tmp_path / "out" / "train.csv"), rows(tmp_path / "out" / "validation.csv")
    assert [int(row["step"]) for row in steps] == list(range(1, 25))
    losses = [float(row["loss"]) for row in steps]
    assert sum(losses[-6:]) < 0.7 * sum(losses[:6])
    assert [float(row["mean_iou"]) for row in validations][-1] == done.report["mean_iou"]
    assert sum(count for _, count in shown) == 24 and shown[3][0].startswith("epoch 1: mean IoU")
    assert read_config(tmp_path / "out" / "config.yaml") == small_run.config(tmp_path, **changes)
    assert same(read_state(tmp_path / "out" / "model.pt"), done.model.state_dict())
    names = {"checkpoint.pt", "best.pt", "model.pt", "config.yaml", "train.csv", "validation.csv"}
    assert {path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")} == names


@pytest.mark.posix
def test_a_run_that_is_stopped_goes_on(tmp_path, monkeypatch):
    whole = small_run.train(tmp_path, "whole")
    take, taken = loop._Run._take_step, []

    def ended(self, *arguments):
        taken.append(self.step)
        if len(taken) in (2, 7):
            os.kill(os.getpid(), signal.SIGTERM)
        return take(self, *arguments)

    monkeypatch.setattr(loop._Run, "_take_step", ended)
    for expected in (r"stopped after step \d of 9; run again to resume", r"stopped after step \d of 9"):
        with pytest.raises(Stopped, match=expected):
            small_run.train(tmp_path, "parts")
    parts = small_run.train(tmp_path, "parts")
    assert taken == list(range(9))
    assert same(whole.model.state_dict(), parts.model.state_dict())
    for name in ("train.csv", "validation.csv"):
        assert (tmp_path / "whole" / name).read_text() == (tmp_path / "parts" / name).read_text()
    again = small_run.train(tmp_path, "parts")  # nothing left to do
    assert same(whole.model.state_dict(), again.model.state_dict()) and again.report == whole.report


def test_parts_of_a_batch_add_up(tmp_path):
    """With statistics fixed, an image at a time is the same as all at once."""
    runs = [
        small_run.train(
            tmp_path,
            f"{m}",
            batch_size=3,
            micro_batch=m,
            model={"settings": {"dropout": 0}},
            crf={"penalty": 9.0},
            loss={"boundary": 2.0},
        )
        for m in (None, 1, 2)
    ]
    whole, *parts = (run.model.state_dict() for run in runs)
    for part in parts:
        for name, value in whole.items():
            torch.testing.assert_close(part[name], value, rtol=1e-4, atol=1e-5)


def test_the_loss_is_the_mean_over_valid_pixels(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(loop._Run, "_loss", lambda self, x, y, _: seen.append(y) or _constant(self, y))
    small_run.train(tmp_path, "out", epochs=1, micro_batch=1)
    losses = [float(row["loss"]) for row in rows(tmp_path / "out" / "train.csv")]
    assert losses == pytest.approx([2.0] * 3)
    assert any((labels == 255).any() for labels in seen)


def _constant(run, labels):
    """2 for each valid pixel."""
    one = sum(p.sum() for p in run.model.parameters()) * 0 + 2
    return one * (labels != 255).sum()


def test_the_loss_of_a_step_is_the_one_of_the_config(tmp_path):
    """The first step of a run reports the sum that the public losses give, however the batch is divided."""
    settings = {
        "loss": {"lovasz": 0.5, "boundary": 2.0, "width": 1.5},
        "epochs": 1,
        "model": {"settings": {"dropout": 0}},
    }
    reported = []
    for micro_batch in (None, 1):
        seen = []

        class Seen(loop._Run):
            def _loss(self, image, labels, weights, seen=seen):
                with torch.no_grad():
                    seen.append((self.model.refine(image, self.model.logits(image)["out"]), labels))
                return super()._loss(image, labels, weights)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "_Run", Seen)
            small_run.train(tmp_path, f"{micro_batch}", micro_batch=micro_batch, **settings)
        reported.append(float(rows(tmp_path / f"{micro_batch}" / "train.csv")[0]["loss"]))
        parts = seen[: 1 if micro_batch is None else len(seen) // 3]
        weights = [losses.boundary_weights(y, strength=2.0, width=1.5, ignore_index=255) for _, y in parts]
        total = sum(w.sum() for w in weights)
        expected = sum(
            w.sum() / total * (
                losses.boundary_cross_entropy(p, y, strength=2.0, width=1.5, ignore_index=255)
                + 0.5 * losses.lovasz_softmax(p.exp(), y, ignore_index=255)
            )
            for (p, y), w in zip(parts, weights, strict=True)
        )  # fmt: skip
        assert reported[-1] == pytest.approx(float(expected), rel=1e-4)
    assert reported[0] != reported[1]  # Lovasz-softmax of a batch is not the mean of those of its images


def test_other_settings_do_not_go_on(tmp_path):
    small_run.train(tmp_path, "out", epochs=1)
    with pytest.raises(FileError, match=r"other settings \(optimizer.crf_lr, seed\); choose another folder"):
        small_run.train(tmp_path, "out", epochs=1, seed=1, optimizer={"crf_lr": 1.0})
    small_run.train(tmp_path, "out", epochs=1, run={"checkpoint_every": 1})


def test_a_damaged_checkpoint_is_named(tmp_path):
    small_run.train(tmp_path, "out", epochs=1)
    path = tmp_path / "out" / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FileError, match=r"checkpoint.pt is not a checkpoint of fwcrf, or it is damaged"):
        small_run.train(tmp_path, "out", epochs=1)


def test_divergence_is_said(tmp_path):
    with pytest.raises(Diverged, match=r"the loss is (nan|inf) in step \d, with learning rates .*lower ones"):
        small_run.train(tmp_path, "out", optimizer={"cnn_lr": 1e30})


def test_seeds_give_different_runs_and_workers_the_same(tmp_path):
    one, two, three = (
        small_run.train(tmp_path, str(number), epochs=1, seed=seed, run={"workers": workers})
        for number, (seed, workers) in enumerate([(0, 0), (0, 2), (1, 0)])
    )
    assert same(one.model.state_dict(), two.model.state_dict())
    assert not same(one.model.state_dict(), three.model.state_dict())


def test_a_network_that_was_trained_here_starts_joint_training(tmp_path):
    small_run.train(tmp_path, "first", crf=None, epochs=1)
    weights = str(tmp_path / "first" / "model.pt")
    done = small_run.train(tmp_path, "second", model={"weights": weights, "frozen": ["0", "1"]}, epochs=1)
    before, after = read_state(weights), done.model.state_dict()
    for name, value in before.items():
        assert torch.equal(after[name], value) == name.startswith(("cnn.0", "cnn.1"))
    learned = {"crf.weights", "crf.compatibility", "crf.start.weights", "crf.start.compatibility"}
    assert {name for name in after if name.startswith("crf.")} == learned


def test_a_crf_that_did_not_move_is_said(tmp_path):
    message = (
        r"left the CRF at its start \(weights .* %.*rates {'crf': 1e-06} over 3 steps.*Raise optimizer.crf_lr"
    )
    settings = {"epochs": 1, "optimizer": {"crf_lr": 1e-6}}
    with pytest.warns(UserWarning, match=message):
        train(small_run.config(tmp_path, **settings), tmp_path / "still", network=small_run.network)
    rates = {"epochs": 1, "optimizer": {"crf_lr": 1e-6, "name": "adam", "crf_lrs": {"weights": 0.1}}}
    train(small_run.config(tmp_path, **rates), tmp_path / "moved", network=small_run.network)  # no warning
    train(small_run.config(tmp_path, crf=None, epochs=1), tmp_path / "none", network=small_run.network)


def test_vanilla_frank_wolfe_trains_nothing_without_an_error(tmp_path):
    with pytest.warns(UserWarning, match="with vanilla Frank-Wolfe"):
        done = small_run.train(
            tmp_path, "fw", epochs=1, crf={"solver": "fw", "skip": 0.0}, model={"frozen": [""]}
        )
    assert done.model.crf.movement() == {"weights": 0.0, "compatibility": 0.0}


def test_a_penalty_holds_the_crf_at_its_start(tmp_path):
    moved = {}
    for name, penalty in (("free", 0.0), ("held", 100.0)):
        settings = {"crf": {"penalty": penalty}, "optimizer": {"crf_lr": 0.002, "momentum": 0.0}}
        done = small_run.train(tmp_path, name, micro_batch=1, **settings)
        moved[name] = done.model.crf.movement()["weights"]
    assert 0 < moved["held"] < 0.7 * moved["free"]


def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path):
    """It has neither the settings nor the initial values that came later."""
    whole = small_run.train(tmp_path, "out", epochs=1)
    path = tmp_path / "out" / "checkpoint.pt"
    stored = torch.load(path, weights_only=True)
    for name in ("penalty", "kernels", "temperature", "bias", "balance"):
        del stored["config"]["crf"][name]
    del stored["config"]["optimizer"]["crf_lrs"]
    stored["model"] = {n: v for n, v in stored["model"].items() if ".start." not in n}
    torch.save(stored, path)
    again = small_run.train(tmp_path, "out", epochs=1)
    assert same(whole.model.state_dict(), again.model.state_dict())


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install 'fwcrf[tensorboard]'")
    small_run.train(tmp_path, "out", epochs=1, run={"tensorboard": True})
    assert list((tmp_path / "out" / "tensorboard").iterdir())


def test_reports_are_json(tmp_path):
    done = small_run.train(tmp_path, "out", epochs=1)
    assert json.loads(json.dumps(done.report)) == done.report


def test_networks_that_come_along_and_of_ones_own(tmp_path):
    config = small_run.config(tmp_path, model={"name": "mobilenetv2"})
    with pytest.raises(ValueError, match="'mobilenetv2' and a network of your own is given"):
        train(config, tmp_path / "out", network=small_run.network)
    with pytest.raises(ValueError, match="'own' and a network of your own is not given"):
        train(small_run.config(tmp_path), tmp_path / "out")
    small = {"name": "mobilenetv2", "settings": {"depth": 0.125}, "frozen": ["backbone"]}
    fast = {"crf_lr": 1.0}
    config = small_run.config(tmp_path, model=small, optimizer=fast, epochs=1)
    assert train(config, tmp_path / "out").step == 3
