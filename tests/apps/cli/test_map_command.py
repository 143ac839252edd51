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
    """A model of three variables and an auxiliary node, which answers what it is asked."""
    calls = []

    def solve(*arguments, **settings):
        calls.append((*arguments, settings))
        bound = {"auto": -1.5, "lp-trw": -2.0}.get(arguments[0])
        return SimpleNamespace(
            labels=torch.tensor([1, 0, 2, 7]),
            energy=torch.tensor(-1.5),
            bound=None if bound is None else torch.tensor(bound),
            proven=None if bound is None else torch.tensor(bound == -1.5),
            engine="search: maximum flow",
        )

    def read_uai(path, evidence=None):
        calls.append((path.name, evidence and evidence.name))
        return SimpleNamespace(solve=solve, num_nodes=4, auxiliary=1)

    monkeypatch.setattr(fwcrf, "read_uai", read_uai, raising=False)
    return calls


def test_what_is_asked_and_answered(asked, fwcrf_command):
    status, out, err = fwcrf_command("map", "a.uai")
    assert (status, out) == (0, "MPE\n3 1 0 2\n")
    lines = r"energy -1.500000\nlog-value 1.500000\nbound -1.500000\nproven optimal\nseconds \d+\.\d{3}\n"
    assert re.fullmatch(lines, err)
    search = {"seed": 0, "time_limit": None, "progress": None, "certify": False}
    assert asked == [("a.uai", None), ("auto", search)]


def test_settings_of_the_search(asked, fwcrf_command):
    assert fwcrf_command("map", "a.uai", "--time-limit", 0.5, "--certify", "--seed", 5)[0] == 0
    search = {"seed": 5, "time_limit": 0.5, "progress": None, "certify": True}
    assert asked == [("a.uai", None), ("auto", search)]


@pytest.mark.parametrize(
    ("flags", "setting"),
    [
        (("--steps", 3), {"num_steps": 3}),
        (("--rounding", "nearest"), {"rounding": "nearest"}),
        (("--restarts", 0), {"restarts": 0}),
        (("--lambda", 0.5), {"weight": 0.5}),
    ],
)
def test_a_setting_of_steps_means_l2fw(asked, fwcrf_command, flags, setting):
    status, _, err = fwcrf_command("map", "a.uai", *flags)
    assert status == 0
    assert re.fullmatch(r"energy -1.500000\nlog-value 1.500000\nseconds \d+\.\d{3}\n", err)
    assert asked == [("a.uai", None), ("l2fw", {"seed": 0, **setting})]


@pytest.mark.parametrize("flags", [("--time-limit", 2), ("--certify",)])
def test_settings_of_the_search_need_the_search(asked, fwcrf_command, flags):
    status, _, err = fwcrf_command("map", "a.uai", "--steps", 3, *flags)
    assert status == 2
    assert f"{flags[0]}: needs the default solver" in err
    assert asked == []


def test_a_bound_is_shown_where_there_is_one(asked, fwcrf_command):
    _, _, err = fwcrf_command("map", "a.uai", "--solver", "lp-trw")
    assert "\nbound -2.000000\ngap 33.3333 %, not proven optimal\n" in err


def test_a_model_without_a_possible_labelling_is_not_called_optimal(fwcrf_command, tmp_path):
    path = tmp_path / "triangle.uai"
    different = "\n4\n0 1 1 0"
    path.write_text(f"MARKOV\n3\n2 2 2\n3\n2 0 1\n2 1 2\n2 0 2\n{3 * different}\n")
    _, out, err = fwcrf_command("map", path)
    assert out.startswith("MPE\n3 ")
    assert "energy inf\nlog-value -inf\nbound inf\nproven: all labellings have a factor of value 0\n" in err
    _, _, err = fwcrf_command("map", path, "--solver", "lp-trws")
    assert "\nthe labels have a factor of value 0; not proven that all have one\n" in err


def test_options(asked, fwcrf_command, tmp_path):
    options = "-e a.evid --solver efw --lambda 0.5 --steps 3 --rounding bcd --restarts 4 --seed 5"
    status, out, _ = fwcrf_command("map", "a.uai", *options.split(), "-o", tmp_path / "a.MAP")
    assert (status, out) == (0, "")
    assert (tmp_path / "a.MAP").read_text() == "MPE\n3 1 0 2\n"
    assert asked == [
        ("a.uai", "a.evid"),
        ("efw", {"weight": 0.5, "num_steps": 3, "rounding": "bcd", "restarts": 4, "seed": 5}),
    ]


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
    optimum = "energy -2.995732\nlog-value 2.995732\n"  # log(4 * 1 * 5)
    assert err.startswith(f"{optimum}bound -2.995732\nproven optimal\nseconds ")
    status, out, err = fwcrf_command("map", path, "--solver", "l2fw")
    assert (status, out) == (0, "MPE\n2 1 1\n")
    assert err.startswith(f"{optimum}seconds ")
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
    status, _, err = fwcrf_command("map", model, "--verbose")
    lines = err.splitlines()
    assert status == 0 and lines[-1] == "search: maximum flow"
    assert re.fullmatch(r" +\d+\.\d{3} s  energy -1\.386294  bound -1\.386294  maximum flow", lines[0])
    status, _, err = fwcrf_command("map", model, "--verbose", "--solver", "l2fw")
    assert status == 0 and "generic path: TableEdges is applied one step at a time" in err
