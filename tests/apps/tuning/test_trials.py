import json
import os

import numpy as np
import pytest
from PIL import Image
from scenes import scene, write_scenes

import fwcrf
from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.local import attempt
from fwcrf.apps.batch.manifest import read_manifest
from fwcrf.apps.files import FileError
from fwcrf.apps.files.settings import Settings, read_settings
from fwcrf.apps.tuning import trials, tune
from fwcrf.apps.tuning.parameters import parameters, ranges, with_parameters

START = Settings(
    solver={"name": "l2fw", "weight": 2.0},
    num_steps=3,
    kernels=[{"kind": "spatial", "xy": 1.0, "weight": 0.5}, {"kind": "bilateral", "xy": 10.0, "color": 30.0}],
)


@pytest.fixture
def calls(monkeypatch, num_threads):
    """Work in this process, and say how often."""
    count = []

    def run(self, items):
        for i, item in enumerate(items):
            count.append(item)
            yield i, attempt(self.job, item)

    monkeypatch.setattr("fwcrf.apps.batch.local.Pool.run", run)
    return count


@pytest.fixture
def items(tmp_path):
    scenes = write_scenes(tmp_path / "scenes", 3)
    return read_manifest(scenes / "images", scenes / "scores", truth=scenes / "truth")


def judged(settings, void=255):
    """The mean IoU over the scenes, written out."""
    counts = np.zeros((3, 3))
    for i in range(3):
        image, p, truth = scene(i)
        labels = fwcrf.refine(image, p, **settings.arguments())
        for t in range(3):
            for s in range(3):
                counts[t, s] += ((truth == t) & (labels == s)).sum()
    return np.mean([counts[c, c] / (counts[c].sum() + counts[:, c].sum() - counts[c, c]) for c in range(3)])


def test_scores_are_those_of_one_confusion_matrix(items, calls):
    tuned = tune(items, START, num_trials=3)
    assert tuned.num_images == 3
    assert tuned.scores_alone == pytest.approx(judged(Settings(num_steps=0)))
    for trial in tuned.trials:
        assert trial.score == pytest.approx(judged(with_parameters(START, trial.point)))
    assert tuned.settings.mapping() == with_parameters(START, tuned.best.point).mapping()


def test_better_settings_are_found(items, calls):
    tuned = tune(items, START, num_trials=12, seed=1)
    assert tuned.best.score > tuned.trials[0].score + 0.02
    assert len(tuned.trials) == 12


def test_only_what_is_asked_for_changes(items, calls):
    tuned = tune(items, START, only=["lambda"], num_trials=4)
    assert [*tuned.trials[0].point] == ["lambda"]
    changed = tuned.settings.mapping() | {"solver": START.mapping()["solver"]}
    assert changed == START.mapping()
    with pytest.raises(ValueError, match="no parameter 'mu' to tune; expected any of lambda, spatial"):
        tune(items, START, only=["mu"])


def test_what_was_measured_is_not_measured_again(items, calls, tmp_path):
    """As after a kill: with any part of the journal the search goes on, and ends with the same."""
    journal = tmp_path / "j.jsonl"
    first = tune(items, START, num_trials=5, journal=journal)
    assert len(calls) == 3 * 6
    content = journal.read_bytes()
    for kept in (len(content), content.index(b"\n", len(content) // 2) - 30, 10):
        calls.clear()
        journal.write_bytes(content[:kept])
        assert tune(items, START, num_trials=5, journal=journal).trials == first.trials
        assert len(calls) == 18 - content[:kept].count(b"\n")
        assert len([json.loads(line) for line in journal.read_bytes().splitlines()[-len(calls) :]]) >= len(
            calls
        )
    calls.clear()
    os.utime(items[0].truth, (1, 1))
    tune(items, START, num_trials=5, journal=journal)
    assert len(calls) == 6


def test_bad_images_are_left_out(items, calls):
    with open(items[1].scores, "r+b") as file:
        file.truncate(500)
    Image.fromarray(np.zeros((3, 4), np.uint8)).save(items[2].truth)
    tuned = tune(items, START, num_trials=1)
    assert tuned.num_images == 1
    assert [item for item, _ in tuned.failures] == items[1:]
    assert "truncated" in tuned.failures[0][1]
    assert "expected the same" in tuned.failures[1][1]
    Image.fromarray(np.full((40, 50), 255, np.uint8)).save(items[0].truth)
    with pytest.raises(FileError, match=r"none of the 3 images can be used; .*nothing but 255"):
        tune(items, START, num_trials=1)


def test_warnings_are_passed_on_once(items, calls):
    np.save(items[0].scores, 2 * np.load(items[0].scores))
    (message,) = tune(items, START, num_trials=2).warnings
    assert "sums to 2" in message


def test_images_without_truth(items, calls):
    bare = [trials.replace(items[0], truth=None)]
    for given in (bare, []):
        with pytest.raises(ValueError, match="tuning needs images with true labels"):
            tune(given)


def test_void_pixels_do_not_count(items, calls):
    for item in items:
        truth = np.asarray(Image.open(item.truth)).copy()
        truth[:20] = 7
        Image.fromarray(truth).save(item.truth)
    tuned = tune(items, START, Reading(void=7), num_trials=1)
    assert 0 < tuned.scores_alone < 1
    assert tune(items, START, num_trials=1).scores_alone < tuned.scores_alone


def test_parameters_go_in_and_out():
    two = Settings(kernels=[*Settings().kernels, {"kind": "bilateral", "xy": [3.0, 4.0], "color": 5}])
    found = parameters(two)
    assert found == {
        "lambda": 1.0, "spatial.weight": 1.0, "spatial.xy": 3.0, "bilateral.weight": 1.0,
        "bilateral.xy": 80.0, "bilateral.color": 13.0, "bilateral2.weight": 1.0, "bilateral2.color": 5.0,
    }  # fmt: skip
    moved = {name: 2 * value for name, value in found.items()}
    assert parameters(with_parameters(two, moved)) == moved
    assert with_parameters(two, moved).kernels[2]["xy"] == [3.0, 4.0]
    assert "lambda" not in parameters(Settings(solver={"name": "mf"}))
    assert parameters(Settings(solver={"name": "efw"}))["lambda"] == 0.25
    assert all(low < found[name] < high for name, (low, high) in ranges(found).items())


@pytest.mark.slow
def test_in_worker_processes(items):
    assert (
        tune(items, START, num_trials=2, num_workers=2).trials
        == tune(items, START, num_trials=2, num_workers=1).trials
    )


def test_the_command(items, calls, tmp_path, fwcrf_command):
    scenes, best = tmp_path / "scenes", tmp_path / "best.yaml"
    given = ("tune", scenes / "images", "-s", scenes / "scores", "-t", scenes / "truth", "-o", best)
    status, out, err = fwcrf_command(*given, "--trials", 3, "--plot", tmp_path / "a.png", "--steps", 2)
    assert status == 0, err
    assert out.splitlines()[0] == "mean IoU over 3 images, 3 trials, seed 0"
    assert len(err.splitlines()) == 3
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 500
    assert read_settings(best).num_steps == 2
    assert [line[2:] for line in best.read_text().splitlines()[:4]] == out.splitlines()
    calls.clear()
    assert fwcrf_command(*given, "--trials", 3, "--steps", 2)[:2] == (0, out)
    assert calls == []
    status, _, err = fwcrf_command("refine", scenes / "images/0.png", "-s", scenes / "scores/0.npy",
                                   "-o", tmp_path / "b.png", "--config", best)  # fmt: skip
    assert status == 0, err


def test_bad_usage_of_the_command(items, tmp_path, fwcrf_command):
    scenes = tmp_path / "scenes"
    given = ("tune", scenes / "images", "-s", scenes / "scores")
    for more, said in (
        (("-o", tmp_path / "a.yaml"), "needs --scores and --truth"),
        (("-t", scenes / "truth", "-o", tmp_path / "a.json"), "must end in .yaml or .yml"),
        (
            ("-t", scenes / "truth", "-o", tmp_path / "a.yaml", "--plot", "a.gif"),
            "must end in .png, .svg or .pdf",
        ),
    ):
        status, _, err = fwcrf_command(*given, *more)
        assert status == 2
        assert said in " ".join(err.split())
    status, _, err = fwcrf_command(*given, "-t", scenes / "truth", "-o", tmp_path / "no" / "a.yaml")
    assert status == 1
    assert "there is no folder" in err
