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
        assert bound == pytest.approx(-3.642444)  # -3 log 3 - log(2) / 2: every node is half and half
