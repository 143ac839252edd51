import math
import os
import re

import pytest

# A cycle of three binary nodes that want to differ, which no labelling of theirs can all do.
MODEL = """MARKOV
3
2 2 2
4
1 0
2 0 1
2 1 2
2 2 0

2 1.0 2.0
4 1.0 3.0 3.0 1.0
4 1.0 3.0 3.0 1.0
4 1.0 3.0 3.0 1.0
"""


@pytest.mark.parametrize("solver", ["lp-trw", "lp-bethe", "lp-rho", "lp-meshi"])
def test_the_bound_is_printed(solver, fwcrf_command, tmp_path):
    (tmp_path / "a.uai").write_text(MODEL)
    status, out, err = fwcrf_command("map", tmp_path / "a.uai", "--solver", solver, "--steps", 10)
    assert status == 0, err
    assert re.fullmatch(r"MPE\n3 1 [01] [01]\n", out)
    energy, bound = (float(re.search(rf"{word} (\S+)", err)[1]) for word in ("energy", "bound"))
    assert energy == pytest.approx(-2.890372)  # -log(2 * 3 * 3)
    assert bound <= energy - 0.7
    if solver != "lp-meshi":
        half_and_half = -3 * math.log(3) - math.log(2) / 2
        assert bound == pytest.approx(half_and_half, abs=2e-6)


def test_the_default_proves_its_labels(fwcrf_command, tmp_path):
    (tmp_path / "a.uai").write_text(MODEL)
    status, out, err = fwcrf_command("map", tmp_path / "a.uai", "-o", os.devnull, "--verbose")
    assert status == 0 and out == "", err
    assert "energy -2.890372\nlog-value 2.890372\nbound -2.890372\nproven optimal\nseconds" in err
    assert re.search(r"0\.\d+ s  energy -2.890372  bound -2.890372  elimination", err)
    assert err.rstrip().endswith("search: elimination")


def test_trws_and_its_gap(fwcrf_command, tmp_path):
    (tmp_path / "a.uai").write_text(MODEL)
    status, _, err = fwcrf_command("map", tmp_path / "a.uai", "--solver", "lp-trws")
    assert status == 0, err
    assert re.search(r"gap 2[0-9]\.\d+ %, not proven optimal", err)


@pytest.mark.parametrize(
    "flags", [("--steps", 3), ("--rounding", "nearest"), ("--restarts", 1), ("--lambda", 0.5)]
)
def test_settings_of_steps_mean_a_solver_with_steps(flags, fwcrf_command, tmp_path):
    (tmp_path / "a.uai").write_text(MODEL)
    status, _, err = fwcrf_command("map", tmp_path / "a.uai", "--verbose", *flags)
    assert status == 0, err
    assert "search" not in err and "bound" not in err
    status, _, err = fwcrf_command("map", tmp_path / "a.uai", "--time-limit", 1, *flags)
    assert status == 2 and "needs the default solver" in err
