"""Ratios are the others' over ours, within a picture, and then the median over the pictures."""

import json

import pytest

from fwcrf.apps.bench import report
from fwcrf.apps.bench.rows import Compared, Row, assemble, spreads
from fwcrf.apps.bench.timing import Spread

TIMES = {
    ("cat", "ours", 1): [0.001, 0.002],
    ("cat", "ours", 2): [0.0005, 0.0005],
    ("cat", "theirs", None): [0.004, 0.008],
    ("dog", "ours", 1): [0.002, 0.002],
    ("dog", "ours", 2): [0.001, 0.001],
    ("dog", "theirs", None): [0.004, 0.004],
    ("cat", "slow", 1): [0.1, 0.1],
}
WANTED = [
    Compared("work", "ours", {"them": "theirs", "slow one": "slow", "absent": "none"}, {1: 2.5}),
    Compared("nobody's", "none", {"them": "theirs"}),
]


def rows():
    return assemble(spreads(TIMES), WANTED, (1, 2))


def test_rows_for_what_was_measured():
    one, two = rows()
    assert (one.threads, two.threads) == (1, 2)
    assert list(one.theirs) == ["them", "slow one"]
    assert list(two.theirs) == ["them"]  # its one thread stands in every row
    assert (one.target, two.target) == (2.5, None)
    assert one.ours["cat"] == Spread(1.0, 1.5)


def test_ratios():
    one, two = rows()
    assert one.ratio("them") == Spread((4 + 2) / 2, (6 / 1.5 + 2) / 2)
    assert one.ratio("slow one").min == pytest.approx(100)  # over the pictures it was measured on
    assert two.ratios() == {"work; 2 threads; them": 6.0}
    assert "work; 1 thread; them" in one.ratios()


def test_table(capsys):
    report.print_rows("Title", rows())
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0].startswith("### Title")
    assert [line.count("|") for line in lines[2:]] == [8] * (2 + 3)
    assert "3.00" in lines[4] and "2.5" in lines[4]


def test_a_row_without_others_is_shown(capsys):
    report.print_rows("Title", [Row("work", 1, "ms", {"cat": Spread(1, 2)}, {})])
    assert "1.0 (2.0) ms" in capsys.readouterr().out


def test_saved_with_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    path = report.save("work", {"rows": rows()})
    stored = json.loads(path.read_text())
    assert stored["machine"]["torch"] == report.torch.__version__
    assert stored["results"]["rows"][0]["ratios"]["them"]["min"] == 3
    assert [p.name for p in path.parent.iterdir()] == ["work.json"]
    with pytest.raises(TypeError, match="cannot be written to a report"):
        report.save("work", {"rows": object()})
