import json
import os
from dataclasses import replace

import numpy as np
import pytest
from in_this_process import counted_calls
from PIL import Image
from scenes import scene, write_scenes

import fwcrf
from fwcrf.apps.batch.job import Reading
from fwcrf.apps.batch.manifest import read_manifest
from fwcrf.apps.files import FileError
from fwcrf.apps.files.settings import Settings, read_settings
from fwcrf.apps.tuning import tune
from fwcrf.apps.tuning.choice import FEWEST
from fwcrf.apps.tuning.parameters import parameters, per_label, ranges, with_parameters
from fwcrf.apps.tuning.shared import arguments
from fwcrf.kernels import Lattice

START = Settings(
    solver={"name": "l2fw", "weight": 2.0},
    num_steps=3,
    kernels=[{"kind": "spatial", "xy": 1.0, "weight": 0.5}, {"kind": "bilateral", "xy": 10.0, "color": 30.0}],
)


@pytest.fixture
def calls(monkeypatch, num_threads):
    return counted_calls(monkeypatch)


def written(folder, count):
    scenes = write_scenes(folder / "scenes", count)
    return read_manifest(scenes / "images", scenes / "scores", truth=scenes / "truth")


@pytest.fixture
def items(tmp_path):
    return written(tmp_path, 3)


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
    assert tuned.choice.miou_start == tuned.trials[0].score
    for trial in tuned.trials:
        assert trial.score == pytest.approx(judged(with_parameters(START, trial.point)))
    assert tuned.settings.mapping() == with_parameters(START, tuned.best.point).mapping()


def test_better_settings_are_found(tmp_path, calls):
    tuned = tune(written(tmp_path, FEWEST), START, num_trials=9)
    assert tuned.choice.index > 0
    assert tuned.best.score > tuned.trials[0].score + 0.02
    assert tuned.choice.miou > tuned.choice.miou_start + 0.02
    assert np.mean(tuned.best.gains) > 0
    assert len(tuned.trials) == 9


def test_few_images_keep_the_start(items, calls):
    tuned = tune(items, START, num_trials=4)
    assert tuned.settings.mapping() == with_parameters(START, parameters(START)).mapping()
    assert "3 images are too few" in tuned.choice.reason
    assert tuned.limits == []


def test_a_parameter_at_a_limit_is_named(tmp_path, calls, monkeypatch):
    far = {"spatial.weight": 0.5 * 7.9}
    monkeypatch.setattr("fwcrf.apps.tuning.trials.design", lambda start, *_, **__: [start, far])
    tuned = tune(written(tmp_path, FEWEST), START, only=["spatial.weight"])
    assert tuned.best.point == far
    assert tuned.limits == ["spatial.weight"]


def test_candidates_with_equal_bandwidths_share_a_lattice(monkeypatch):
    """The labels equal the labels of separate calls, to the last pixel."""
    built, build = [], Lattice.of_image
    monkeypatch.setattr(Lattice, "of_image", lambda *given: built.append(1) or build(*given))
    image, p, _ = scene(0)
    names = {"lambda": 0.5, "steps": 5, "spatial.weight": 2.0, "bilateral.weight": 3.0}
    alike = [START, *(with_parameters(START, {name: value}) for name, value in names.items())]
    other = with_parameters(START, {"bilateral.xy": 20.0})
    apart = [fwcrf.refine(image, p, spacing=2.0, **one.arguments()) for one in (*alike, other)]
    count = len(built)
    shared = [fwcrf.refine(image, p, spacing=2.0, **given) for given in arguments([*alike, other])]
    np.testing.assert_array_equal(shared, apart)
    assert count == 6
    assert len(built) - count == 2


def test_only_what_is_asked_for_changes(items, calls):
    tuned = tune(items, START, only=["lambda"], num_trials=4)
    assert [*tuned.trials[0].point] == ["lambda"]
    changed = tuned.settings.mapping() | {"solver": START.mapping()["solver"]}
    assert changed == START.mapping()
    with pytest.raises(
        ValueError, match="no parameter 'mu' to tune; expected any of lambda, temperature, steps"
    ):
        tune(items, START, only=["mu"])


def test_what_was_measured_is_not_measured_again(items, calls, tmp_path):
    """As after a kill: with any part of the journal the search goes on, and ends with the same."""
    journal = tmp_path / "j.jsonl"
    first = tune(items, START, num_trials=5, journal=journal)

    def measured():
        return sum(len(candidates) for _, candidates in calls)

    assert measured() == 3 * 6
    content = journal.read_bytes()
    for kept in (len(content), content.index(b"\n", len(content) // 2) - 30, 10):
        calls.clear()
        journal.write_bytes(content[:kept])
        again = tune(items, START, num_trials=5, journal=journal)
        assert (again.trials, again.choice.unseen) == (first.trials, first.choice.unseen)
        assert measured() == 18 - content[:kept].count(b"\n")
        added = journal.read_bytes().splitlines()[content[:kept].count(b"\n") + (kept < len(content)) :]
        assert len([json.loads(line) for line in added]) == measured()
    calls.clear()
    os.utime(items[0].truth, (1, 1))
    tune(items, START, num_trials=5, journal=journal)
    assert not calls
    status = os.stat(items[0].scores)
    np.save(items[0].scores, np.load(items[0].scores)[::-1])
    os.utime(items[0].scores, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert os.stat(items[0].scores).st_size == status.st_size
    tune(items, START, num_trials=5, journal=journal)
    assert measured() == 6


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
    ((file, message),) = tune(items, START, num_trials=2).warnings
    assert file == items[0].scores
    assert "sums to 2" in message


def test_images_without_truth(items, calls):
    bare = [replace(items[0], truth=None)]
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
    kernels = [*Settings().kernels, {"kind": "bilateral", "xy": [3.0, 4.0], "color": 5}]
    two = replace(Settings(), kernels=kernels)
    found = parameters(two)
    assert found == {
        "lambda": 1.0, "temperature": 1.0, "steps": 5, "balance": 0.3,
        "spatial.weight": 0.3, "spatial.xy": 3.0, "bilateral.weight": 2.4,
        "bilateral.xy": 80.0, "bilateral.color": 6.0, "bilateral2.weight": 1.0, "bilateral2.color": 5.0,
    }  # fmt: skip
    moved = {name: 2 * value for name, value in found.items()} | {"temperature": 1.0}
    assert parameters(with_parameters(two, moved)) == moved
    assert with_parameters(two, moved).kernels[2]["xy"] == [3.0, 4.0]
    assert "lambda" not in parameters(Settings(solver={"name": "mf"}))
    assert parameters(Settings(solver={"name": "efw"}))["lambda"] == 0.25
    assert all(low < found[name] < high for name, (low, high) in ranges(found).items())
    apart = per_label(Settings(), 3)
    assert apart.kernels[1]["weight"] == [2.4, 2.4, 2.4]
    assert parameters(apart)["bilateral.weight.2"] == 2.4
    heavier = with_parameters(apart, {"bilateral.weight.2": 1.5, "steps": 7})
    assert (heavier.kernels[1]["weight"], heavier.num_steps) == ([2.4, 2.4, 1.5], 7)
    assert apart.kernels[1]["weight"] == [2.4, 2.4, 2.4]


def test_a_temperature_of_the_scores_is_a_factor_of_all_that_compete_with_them():
    """After many steps, labels of logits / 1.5 are those of the scaled settings."""
    image, p, _ = scene(0)
    start = replace(START, balance=0.0, num_steps=60)
    hot = with_parameters(start, {"temperature": 1.5})
    assert hot.solver["weight"] == 3.0
    assert [kernel.get("weight") for kernel in hot.kernels] == [0.75, 1.5]
    logits = np.log(np.clip(p, 1e-6, 1))
    softer = fwcrf.refine(image, logits / 1.5, from_logits=True, **start.arguments())
    scaled = fwcrf.refine(image, logits, from_logits=True, **hot.arguments())
    assert (softer == scaled).mean() > 0.995
    assert (scaled != fwcrf.refine(image, logits, from_logits=True, **start.arguments())).any()
    both = with_parameters(Settings(), {"temperature": 1.5, "bilateral.weight": 2.0, "steps": 4})
    assert (both.kernels[1]["weight"], both.num_steps) == (3.0, 4)
    assert both.balance == pytest.approx(1.5 * Settings().balance)


@pytest.mark.slow
def test_in_worker_processes(items):
    assert (
        tune(items, START, num_trials=2, num_workers=2).trials
        == tune(items, START, num_trials=2, num_workers=1).trials
    )


def test_the_command(tmp_path, calls, fwcrf_command):
    written(tmp_path, FEWEST)
    scenes, best = tmp_path / "scenes", tmp_path / "best.yaml"
    given = ("tune", scenes / "images", "-s", scenes / "scores", "-t", scenes / "truth", "-o", best)
    given += ("--preset", "paper")  # a start that is easily beaten on these images
    pages = ("--plot", tmp_path / "a.png", "--report", tmp_path / "a.html")
    status, out, err = fwcrf_command(*given, "--trials", 5, *pages, "--steps", 2)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == f"mean IoU over {FEWEST} images, 5 trials, seed 0"
    assert [line.split()[0] for line in lines[1:5]] == ["scores", "start", "cross-validated", "chosen"]
    assert len(err.splitlines()) == 5
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.width > 500
    page = (tmp_path / "a.html").read_text()
    assert page.count("data:image/png;base64,") == 3
    assert "cross-validated" in page
    assert "ten percent less error" in page
    assert "<td>bilateral.weight</td><td>Penalty for labels that differ" in page
    assert read_settings(best).num_steps in (1, 2, 3, 4, 5)  # 5 is the default's, a candidate
    assert [line[2:] for line in best.read_text().splitlines() if line.startswith("#")] == lines
    calls.clear()
    assert fwcrf_command(*given, "--trials", 5, "--steps", 2)[:2] == (0, out)
    assert calls == []
    status, _, err = fwcrf_command("refine", scenes / "images/0.png", "-s", scenes / "scores/0.npy",
                                   "-o", tmp_path / "b.png", "--config", best)  # fmt: skip
    assert status == 0, err


def test_one_weight_per_class(items, calls, tmp_path, fwcrf_command):
    scenes, best = tmp_path / "scenes", tmp_path / "best.yaml"
    given = ("tune", scenes / "images", "-s", scenes / "scores", "-t", scenes / "truth", "-o", best)
    page = tmp_path / "a.html"
    status, out, err = fwcrf_command(*given, "--trials", 2, "--per-class", "--steps", 2, "--report", page)
    assert status == 0, err
    assert "The start is kept" in page.read_text()
    assert "bilateral.weight.2 2.4" in out
    assert f"The start is kept: 3 images are too few to choose by; {FEWEST} are the least" in out
    assert read_settings(best).kernels[1]["weight"] == [2.4, 2.4, 2.4]
    status, _, err = fwcrf_command(*given, "--per-class", "--only", "bilateral.weight.3")
    assert status == 2
    assert "bilateral.weight.2" in err


def test_bad_usage_of_the_command(items, tmp_path, fwcrf_command):
    scenes = tmp_path / "scenes"
    given = ("tune", scenes / "images", "-s", scenes / "scores")
    for more, said in (
        (("-o", tmp_path / "a.yaml"), "needs --scores and --truth"),
        (("-t", scenes / "truth", "-o", tmp_path / "a.json"), "must end in .yaml or .yml"),
        (
            ("-t", scenes / "truth", "-o", tmp_path / "a.yaml", "--plot", "a.gif"),
            "must end in .png or .svg or .pdf",
        ),
        (("-t", scenes / "truth", "-o", tmp_path / "a.yaml", "--report", "a.md"), "must end in .html"),
    ):
        status, _, err = fwcrf_command(*given, *more)
        assert status == 2
        assert said in " ".join(err.split())
    status, _, err = fwcrf_command(*given, "-t", scenes / "truth", "-o", tmp_path / "no" / "a.yaml")
    assert status == 1
    assert "there is no folder" in err
