import gzip
import re
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
        bound = torch.tensor(-2.0) if arguments[0] == "lp-trw" else None
        return SimpleNamespace(labels=torch.tensor([1, 0, 2]), energy=torch.tensor(-1.5), bound=bound)

    def read_uai(path, evidence=None):
        calls.append((path.name, evidence and evidence.name))
        return SimpleNamespace(solve=solve)

    monkeypatch.setattr(fwcrf, "read_uai", read_uai, raising=False)
    return calls


def test_what_is_asked_and_answered(asked, fwcrf_command):
    status, out, err = fwcrf_command("map", "a.uai")
    assert (status, out) == (0, "MPE\n3 1 0 2\n")
    assert re.fullmatch(r"energy -1.500000\nlog-value 1.500000\nseconds \d+\.\d{3}\n", err)
    assert asked == [("a.uai", None), ("l2fw", 50, "bcd", {})]


def test_a_bound_is_shown_where_there_is_one(asked, fwcrf_command):
    _, _, err = fwcrf_command("map", "a.uai", "--solver", "lp-trw")
    assert "\nbound -2.000000\n" in err


def test_options(asked, fwcrf_command, tmp_path):
    options = "-e a.evid --solver efw --lambda 0.5 --steps 3 --rounding bcd --restarts 4 --seed 5"
    status, out, _ = fwcrf_command("map", "a.uai", *options.split(), "-o", tmp_path / "a.MAP")
    assert (status, out) == (0, "")
    assert (tmp_path / "a.MAP").read_text() == "MPE\n3 1 0 2\n"
    assert asked == [
        ("a.uai", "a.evid"), ("efw", 3, "bcd", {"weight": 0.5, "restarts": 4, "seed": 5}),
    ]  # fmt: skip


def test_what_cannot_be_written_is_said_before(asked, fwcrf_command, tmp_path):
    status, _, err = fwcrf_command("map", "a.uai", "-o", tmp_path / "no" / "a.MAP")
    assert status == 1
    assert "there is no folder" in err
    assert asked == []


@pytest.mark.parametrize("name", ["a.uai", "a.uai.gz"])
def test_a_model_in_a_file(fwcrf_command, tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress(MODEL.encode()) if name.endswith("gz") else MODEL.encode())
    status, out, err = fwcrf_command("map", path)
    assert (status, out) == (0, "MPE\n2 1 1\n")
    assert err.startswith("energy -2.995732\nlog-value 2.995732\nseconds ")  # log(4 * 1 * 5)
    (tmp_path / "a.evid").write_text("1 0 0\n")
    assert fwcrf_command("map", path, "-e", tmp_path / "a.evid")[1] == "MPE\n2 0 0\n"
    options = ("--solver", "mf", "--restarts", 8, "--seed", 3)
    assert fwcrf_command("map", path, *options)[:2] == (0, "MPE\n2 1 1\n")


def test_mistakes_are_answered_with_a_sentence(fwcrf_command, tmp_path):
    path = tmp_path / "a.uai"
    status, _, err = fwcrf_command("map", path)
    assert (status, err) == (1, f"fwcrf: {path} cannot be read: No such file or directory.\n")
    path.write_text(MODEL.replace("4.0", "four"))
    status, _, err = fwcrf_command("map", path)
    assert (status, err) == (1, f"fwcrf: {path}, line 9: 'four'; expected a number.\n")
    path.write_text(MODEL)
    status, _, err = fwcrf_command("map", path, "--solver", "bp")
    assert status == 2
    assert "solver 'bp' is not known" in err
    status, _, err = fwcrf_command("map", path, "--restarts", 2, "--rounding", "nearest")
    assert status == 2
    assert "needs --rounding bcd" in err


def test_bench_is_handed_on(fwcrf_command, monkeypatch):
    given = []
    monkeypatch.setitem(sys.modules, "fwcrf.apps.bench.__main__", SimpleNamespace(main=given.append))
    assert fwcrf_command("bench", "speed", "--rounds", 3, "--help")[0] == 0
    assert given == [["speed", "--rounds", "3", "--help"]]


def test_verbose_prints_the_path_that_ran(tmp_path, fwcrf_command):
    model = tmp_path / "model.uai"
    model.write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    status, _, stderr = fwcrf_command("map", model, "--verbose")
    assert status == 0 and "generic path: SharedEdges is applied one step at a time" in stderr.replace(
        "TableEdges", "SharedEdges"
    )
