import numpy as np
import pytest
from in_this_process import counted_calls

from fwcrf.apps.experiments import images, judge_tuning
from fwcrf.apps.files.settings import Settings
from fwcrf.apps.tuning.parameters import parameters


@pytest.fixture
def calls(monkeypatch):
    return counted_calls(monkeypatch)


def test_gains_are_those_on_the_other_images():
    rng = np.random.default_rng(0)
    right = np.stack([np.full(30, 700), rng.integers(750, 900, 30)])
    areas = np.zeros((2, 30, 3, 21))
    areas[..., 0, :2] = right[..., None]
    areas[..., 1:, :2] = 1000
    points = [parameters(Settings()), parameters(Settings()) | {"lambda": 2.0}]
    for row in judge_tuning.judge(areas, points, 12, range(3)):
        drawn = judge_tuning.random.Random(row["seed"]).sample(range(30), 12)
        rest = np.delete(right, drawn, 1).sum(1)
        expected = 100 * rest / (2 * 18_000 - rest)
        assert row["candidate"] == 1
        assert row["start"] == pytest.approx(expected[0])
        assert row["gain"] == pytest.approx(expected[1] - expected[0])
        assert row["reported"] > 0


def test_measurements_are_made_once(made, tmp_path, calls, capsys):
    given = ["--data", str(made), "-o", str(tmp_path), "--trials", "3", "--images", "2", "--every", "4"]
    judge_tuning.main([*given, "--draws", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(judge_tuning.STARTS)
    assert all("0 of 2 draws of 2 images change the start" in line for line in lines)
    names = images.scored(made / "voc2012").names
    assert {name for name, _ in calls} == set(names)
    (path,) = tmp_path.iterdir()
    content = path.read_text()
    cut = content.rindex("\n") + 20
    path.write_text(content[:cut])
    calls.clear()
    judge_tuning.main([*given, "--draws", "2"])
    assert len(calls) == 1
    assert capsys.readouterr().out.splitlines() == lines
