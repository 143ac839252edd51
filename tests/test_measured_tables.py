"""Figures in pages are those of the CSV files beside them."""

import csv
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
sys.path.insert(0, str(DOCS))

import measure_joint  # noqa: E402
from measuring import records  # noqa: E402

JOINT = [name for name in measure_joint.NAMES if (records.FOLDER / f"{name}.csv").exists()]


def block(page, name):
    """The table between the marks of this name."""
    text = (DOCS / page).read_text()
    found = re.search(rf"<!-- measured: {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found, f"{page} has no table {name!r}"
    return found[1].strip()


def rows(name):
    with (records.FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", records.PAGES)
def test_a_table_is_its_csv_file(name):
    measured = records.path(name).exists()
    assert block(records.PAGES[name], name) == (records.table(name) if measured else "Not measured yet.")


@pytest.mark.parametrize(
    ("run", "begin"),
    [("10 steps of l2fw", "| 10 steps of `l2fw` "), ("10 steps of mf", "| 10 steps of mean field, like")],
)
def test_the_readme_has_the_speed_of_random_photographs(run, begin):
    (row,) = (row for row in rows("photographs") if run in row.values())
    median, least, most = (f"{float(row[name]):.1f}" for name in ("median", "least", "most"))
    lines = (DOCS.parent / "README.md").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(begin))
    assert line.endswith(f"| {median} ({least} to {most}) times faster |")


def test_every_csv_file_is_compared():
    assert "joint" in JOINT
    compared = {
        *(name for name in records.PAGES if records.path(name).exists()),
        *(f"{name}{end}" for name in JOINT for end in ("", "-verdicts")),
    }
    assert {path.stem for path in records.FOLDER.glob("*.csv")} == compared


@pytest.mark.parametrize("name", JOINT)
def test_tables_of_joint_training_are_their_csv_files(name):
    runs, verdicts = rows(name), rows(f"{name}-verdicts")
    assert block("experiments.md", name) == measure_joint.summary(runs)
    assert block("experiments.md", f"{name}-classes") == measure_joint.per_class(runs)
    assert block("experiments.md", f"{name}-verdicts") == measure_joint.judged(verdicts)


@pytest.mark.parametrize("name", JOINT)
def test_the_table_of_claims_has_the_verdicts_of_joint_training(name):
    text = (DOCS / "experiments.md").read_text()
    there = [line for line in text.splitlines() if line.startswith(f"| `{name}` | on ")]
    assert there == [measure_joint.claim_line(name, row) for row in rows(f"{name}-verdicts")]


@pytest.mark.parametrize("name", JOINT)
def test_verdicts_follow_from_their_intervals(name):
    for row in rows(f"{name}-verdicts"):
        low, high, value = (float(row[key]) for key in ("low", "high", "difference"))
        assert low <= value <= high, row["claim"]
        expected = "As in the paper" if low > 0 else "Not as in the paper" if high < 0 else "Cannot tell"
        assert row["verdict"] == expected, row["claim"]


@pytest.mark.parametrize("name", JOINT)
def test_differences_of_verdicts_are_those_of_the_models(name):
    """Each claim names its models and their means, which are those of the table of runs."""
    runs = rows(name)
    measure = next(key for key in runs[0] if key.startswith("mIoU"))
    for row in rows(f"{name}-verdicts"):
        shown = row["figures"].removeprefix(f"{measure}: ")
        for model in {run["model"] for run in runs}:
            values = [float(run[measure]) for run in runs if run["model"] == model]
            for figure in re.findall(rf"(?:^|, ){re.escape(model)} ([\d.]+)(?:,|$)", shown):
                assert float(figure) == pytest.approx(sum(values) / len(values), abs=0.005 + 1e-9), model
