import sys
from types import SimpleNamespace

import pytest
import torch

import fwcrf

# Two binary nodes that like to be 1 and 0, and a factor that likes them equal.
MODEL = """MARKOV
2
2 2
3
1 0
1 1
2 0 1

2 1.0 4.0
2 3.0 1.0
4 5.0 1.0 1.0 5.0
"""


@pytest.fixture
def asked(monkeypatch):
    """A model that answers what it is asked, instead of one that is read."""
    calls = []

    def solve(*arguments, **settings):
        calls.append((*arguments, settings))
        return SimpleNamespace(labels=torch.tensor([1, 0, 2]), energy=torch.tensor(-1.5), bound=-2.0)

    def read_uai(path, evidence=None):
        calls.append((path.name, evidence and evidence.name))
        return SimpleNamespace(solve=solve)

    monkeypatch.setattr(fwcrf, "read_uai", read_uai, raising=False)
    return calls


def test_what_is_asked_and_answered(asked, fwcrf_command):
    assert fwcrf_command("map", "a.uai") == (
        0, "MPE\n3 1 0 2\n", "energy -1.500000, which cannot be lower than -2.000000\n",
    )  # fmt: skip
    assert asked == [("a.uai", None), ("l2fw", 50, "bcd", {})]


def test_options(asked, fwcrf_command, tmp_path):
    options = "-e a.evid --solver efw --lambda 0.5 --steps 3 --rounding nearest --restarts 4 --seed 5"
    status, out, _ = fwcrf_command("map", "a.uai", *options.split(), "-o", tmp_path / "a.MAP")
    assert (status, out) == (0, "")
    assert (tmp_path / "a.MAP").read_text() == "MPE\n3 1 0 2\n"
    assert asked == [
        ("a.uai", "a.evid"), ("efw", 3, "nearest", {"weight": 0.5, "restarts": 4, "seed": 5}),
    ]  # fmt: skip


def test_what_cannot_be_written_is_said_before(asked, fwcrf_command, tmp_path):
    status, _, err = fwcrf_command("map", "a.uai", "-o", tmp_path / "no" / "a.MAP")
    assert status == 1
    assert "there is no folder" in err
    assert asked == []


@pytest.mark.skipif(not hasattr(fwcrf, "read_uai"), reason="needs fwcrf.read_uai")
def test_a_model_in_a_file(fwcrf_command, tmp_path):
    (tmp_path / "a.uai").write_text(MODEL)
    status, out, err = fwcrf_command("map", tmp_path / "a.uai")
    assert (status, out) == (0, "MPE\n2 1 1\n")
    assert err == "energy -2.995732\n"  # -log(4 * 1 * 5)
    (tmp_path / "a.evid").write_text("1 0 0\n")
    assert fwcrf_command("map", tmp_path / "a.uai", "-e", tmp_path / "a.evid")[1] == "MPE\n2 0 0\n"
    assert fwcrf_command("map", tmp_path / "b.uai")[0] == 1


def test_bench_is_handed_on(fwcrf_command, monkeypatch):
    given = []
    monkeypatch.setitem(sys.modules, "fwcrf.bench.__main__", SimpleNamespace(main=given.append))
    assert fwcrf_command("bench", "speed", "--rounds", 3, "--help")[0] == 0
    assert given == [["speed", "--rounds", "3", "--help"]]
