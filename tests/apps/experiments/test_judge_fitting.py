"""Options of ``fwcrf fit``, compared by cross-validation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenes import write_scenes

from fwcrf.apps.batch.manifest import read_manifest
from fwcrf.apps.experiments.judge_fitting import Judge, compared
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.fitting import Options, descent

# Weights that are far too small: a fit must raise them.
START = Settings(
    solver={"name": "efw", "weight": 1.0},
    num_steps=3,
    kernels=[
        {"kind": "spatial", "xy": 1.0, "weight": 0.05},
        {"kind": "bilateral", "xy": 10.0, "color": 30.0, "weight": 0.1},
    ],
    balance=0.0,
)
OPTIONS = Options(learn=("weights",), num_steps=8, crop=40, rate=0.5, penalty=0.001)


@pytest.fixture
def items(tmp_path):
    scenes = write_scenes(tmp_path / "scenes", 4)
    return read_manifest(scenes / "images", scenes / "scores", truth=scenes / "truth")


def test_a_fit_gains_over_a_bad_start_and_is_kept(items, tmp_path, monkeypatch):
    judge = Judge(tmp_path / "out", START, num_folds=2)
    gain = judge.cross_validated(items, OPTIONS)
    assert gain.value > 0 and gain.low <= gain.value <= gain.high and gain.images == 4
    monkeypatch.setattr(descent, "descend", lambda *_: pytest.fail("fitted again"))
    again = Judge(tmp_path / "out", START, num_folds=2)
    assert again.cross_validated(items, OPTIONS) == gain


def test_an_image_is_not_labelled_by_a_fit_to_itself(items, tmp_path, monkeypatch):
    seen = []
    fitted, areas = Judge.fitted, Judge._areas
    monkeypatch.setattr(
        Judge, "fitted", lambda self, few, options: seen.append(("fit", few)) or fitted(self, few, options)
    )
    monkeypatch.setattr(
        Judge, "_areas", lambda self, s, few: seen.append(("label", few)) or areas(self, s, few)
    )
    Judge(tmp_path / "out", START, num_folds=2).cross_validated(items, replace(OPTIONS, num_steps=1))
    fit_to, labelled = [], set()
    for kind, few in seen:
        if kind == "fit":
            fit_to = few
        elif len(few) == 1:
            assert few[0] not in fit_to
            labelled.add(few[0])
    assert labelled == set(items)


def test_held_out_images_are_the_judged_ones(items, tmp_path):
    judge = Judge(tmp_path / "out", START, num_folds=2)
    gain = judge.held_out(items[:2], items[2:], OPTIONS)
    after = judge.score(items[2:], judge.fitted(items[:2], OPTIONS))
    assert gain.value == pytest.approx(after - judge.score(items[2:]))
    assert gain.images == 2


def test_classes_that_count(items, tmp_path):
    judge = Judge(tmp_path / "out", START)
    every, one = judge.score(items), replace(judge, classes=(0,)).score(items)
    assert 0 < one <= 100 and one != every
    # A class beyond all labels has no true pixel, and does not count.
    assert replace(judge, classes=(0, 99)).score(items) == pytest.approx(one)


def test_a_row_per_candidate(items, tmp_path):
    few = replace(OPTIONS, num_steps=1)
    rows = compared(
        Judge(tmp_path / "out", START, num_folds=2), items, {"a": few, "b": replace(few, rate=0.1)}
    )
    assert [row["fit"] for row in rows] == ["a", "b"] and all(row["low"] <= row["gain"] for row in rows)
