"""Regressions are ratios that fell by more than the tolerance."""

import json
from pathlib import Path

import pytest

from fwcrf.apps.bench import compare, report, speed
from fwcrf.apps.bench.rows import Row
from fwcrf.apps.bench.timing import Spread

BEFORE = {"a": 4.0, "b": 2.0, "gone": 1.0}


def test_changes_of_what_both_have():
    found = compare.changes(BEFORE, {"a": 4.2, "b": 1.0, "new": 9.0})
    assert [(c.what, c.share) for c in found] == [("b", 0.5), ("a", 1.05)]


@pytest.mark.parametrize("now, worse", [(4.0, 0), (3.41, 0), (3.39, 1), (99.0, 0)])
def test_tolerance(now, worse):
    assert len(compare.regressions(compare.changes(BEFORE, {"a": now}), 0.15)) == worse


def test_stored_and_read_back(tmp_path):
    path = tmp_path / "folder" / "baseline.json"
    compare.store(path, False, {"a": 4.00049})
    compare.store(path, True, {"a": 3.0})
    compare.store(path, False, {"b": 2.0})  # the others stay
    assert compare.load(path, False) == {"a": 4.0, "b": 2.0}
    assert compare.load(path, True) == {"a": 3.0}
    assert [p.name for p in path.parent.iterdir()] == ["baseline.json"]


@pytest.mark.parametrize(
    "content, match",
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "no ratios of a full run"),
        ('{"quick": {"a": 1}}', "no ratios of a full run"),
        ('{"full": {"a": "fast"}}', "no ratios of a full run"),
        ('{"full": {"a": 0}}', "no ratios of a full run"),
    ],
)
def test_unreadable_files_are_said_to_be_so(tmp_path, content, match):
    path = tmp_path / "baseline.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=match):
        compare.load(path, False)


def test_what_the_repository_stores():
    """It holds ratios of both kinds of run, and nothing else."""
    path = Path(__file__).parents[3] / compare.BASELINE
    stored = json.loads(path.read_text())
    assert {*stored} <= {"full", "quick"}
    for quick in (False, True):
        assert compare.load(path, quick)


@pytest.fixture
def fake_run(tmp_path, monkeypatch):
    """A benchmark that is over at once; its one ratio is 4."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "cores_at_hand", lambda: 1.0)
    row = Row("work", 1, "ms", {"cat": Spread(1.0, 1.0)}, {"them": {"cat": Spread(4.0, 4.0)}})
    monkeypatch.setattr(speed, "run", lambda plan: {"rows": [row]})
    return tmp_path


def test_exit_status(fake_run, fwcrf_command):
    key = "work; 1 thread; them"
    assert fwcrf_command("bench", "speed", "--store", "ratios.json")[0] == 0
    assert compare.load(fake_run / "ratios.json", False) == {key: 4.0}
    status, out, _ = fwcrf_command("bench", "speed", "--compare", "ratios.json")
    assert (status, out.splitlines()[-1]) == (0, "none fell by more than 15%")
    compare.store(fake_run / "ratios.json", False, {key: 5.0})
    status, out, _ = fwcrf_command("bench", "speed", "--compare", "ratios.json")
    assert (status, out.splitlines()[-1]) == (1, "1 fell by more than 15%")
    assert fwcrf_command("bench", "speed", "--compare", "ratios.json", "--tolerance", "0.3")[0] == 0
    status, _, err = fwcrf_command("bench", "speed", "--compare", "absent.json")
    assert status == 1 and "absent.json cannot be read" in err


@pytest.mark.parametrize("wrong", [["sped"], ["--rounds", "0"], ["--tolerance", "2"]])
def test_bad_usage(fwcrf_command, wrong):
    assert fwcrf_command("bench", *wrong)[0] == 2
