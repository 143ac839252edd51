"""The pieces that experiments are made of."""

from __future__ import annotations

import csv
import io
import math
import re

import pytest
import torch

from fwcrf import solvers
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments import Finding, Outcome, images, runs
from fwcrf.apps.experiments.accuracy import accuracy, miou9, miou18, of_runs
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.curves import Curve, mean_energies, paper
from fwcrf.apps.experiments.figures import Panel, bars, lines
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.experiments.outcome import write
from fwcrf.apps.experiments.potts import PAPER, Potts
from fwcrf.apps.experiments.report import write_report
from fwcrf.apps.experiments.runs import Evaluations, Evaluator, Run, carry_out
from fwcrf.apps.experiments.setup import data_folder, paper_curves
from fwcrf.apps.experiments.verdict import Interval, Verdict
from fwcrf.apps.files import FileError
from fwcrf.torch_ops.simplex import softmax


def test_halves_have_no_image_in_common_and_are_spread_evenly(made):
    first, second = images.halves(made / "voc2012")
    assert not set(first) & set(second) and len(first) + len(second) == 8
    assert images.spread(range(112), 16) == images.spread(range(112), 32)[::2]
    assert images.spread([1, 2, 3], 9) == [1, 2, 3]


def test_energy_of_labels_without_the_labels_that_do_not_occur(made):
    picture = images.load(made / "voc2012", "image0")
    problem = Potts(1.7).problem(picture)
    best = problem.unary.argmin(-1)
    labellings = [best, best.clamp(max=1), torch.full((4800,), 2), best.flip(0), 2 - best]
    expected = [float(problem.energy().of_labels(labels)) for labels in labellings]
    assert problem.of_labels(labellings) == pytest.approx(expected, abs=1e-3)
    assert [problem.of_labels([labels])[0] for labels in labellings] == pytest.approx(expected, abs=1e-3)
    heavier = Potts(3.4).problem(picture)
    assert problem.weighted(3.4).of_labels(labellings) == heavier.of_labels(labellings)


def test_a_run_sees_what_the_solver_does(made):
    picture = images.load(made / "voc2012", "image1", every=2)
    problem = PAPER.problem(picture, every=2)
    found = carry_out(Run("mf", steps=(0, 1, 3)), Evaluator(problem, picture.truth, 255))
    seen = Evaluations.of(list(found.values()))
    f = problem.energy()
    x = softmax(f.unary, -1.0)
    expected = [float(f.of_labels(x.argmax(-1)))]
    for k in range(3):
        x = softmax(f.grad(x), -1.0)
        if k != 1:
            expected.append(float(f.of_labels(x.argmax(-1))))
    assert seen.energies == pytest.approx(expected, rel=1e-6)
    assert seen.first == 0
    counted = int((picture.truth != 255).sum())
    assert [int(seen.confusion(place, 3).sum()) for place in range(3)] == [counted] * 3
    counts = Confusion(3)
    counts.update(x.argmax(-1).view_as(picture.truth), picture.truth)
    assert torch.equal(seen.confusion(2, 3), counts.matrix)


def test_settings_of_the_paper_reach_the_solver_and_the_stored_key(monkeypatch):
    assert runs.SETTINGS == {"emd": {"epsilon": 1e-10}}
    assert Run("emd").build() == solvers.get("emd", epsilon=1e-10)
    monkeypatch.setattr(runs, "SETTINGS", {})
    default, other = Run("emd").path, Run("pgd").path
    monkeypatch.setattr(runs, "SETTINGS", {"emd": {"step": 0.5}})
    assert Run("emd").build() == solvers.get("emd", step=0.5)
    assert Run("emd").path != default and Run("pgd").path == other


def test_a_labelling_is_looked_at_once(made, monkeypatch):
    picture = images.load(made / "voc2012", "image1", every=2)
    problem = PAPER.problem(picture, every=2)
    evaluator, count, of_labels = Evaluator(problem, picture.truth, 255), [], type(problem).of_labels

    def counted(self, labellings):
        count.append(len(labellings))
        return of_labels(self, labellings)

    monkeypatch.setattr(type(problem), "of_labels", counted)
    steps = (0, 1, 2, 3)
    one, other = (carry_out(Run(*run, steps=steps), evaluator) for run in (("mf",), ("efw", 1.0)))
    assert one == other and 0 < sum(count) <= 4 and count[-1] == 0
    third = carry_out(Run("l2fw", 1.0, steps=steps), evaluator)
    assert third == carry_out(Run("l2fw", 1.0, steps=steps), Evaluator(problem, picture.truth, 255))


def test_a_true_label_that_is_no_class_is_refused(made):
    picture = images.load(made / "voc2012", "image1", every=2)
    truth = picture.truth.clone()
    truth[0, 0] = 3
    evaluator = Evaluator(PAPER.problem(picture, every=2), truth, 255)
    with pytest.raises(ValueError, match="a true label is 0 or 3"):
        carry_out(Run("mf", steps=(0,)), evaluator)


def test_mean_energies_are_relative_to_the_start():
    seen = [Evaluations([10.0, 7.0], [], 0), Evaluations([-4.0, -5.0], [], 0)]
    assert mean_energies(seen) == [0.0, -2.0]


def test_accuracy_leaves_out_classes_that_are_not_there():
    matrix = torch.zeros(21, 21, dtype=torch.int64)
    matrix[0, 0], matrix[8, 8], matrix[8, 0], matrix[3, 3] = 6, 1, 2, 5
    found = accuracy(matrix[None])
    assert found.miou9 == pytest.approx(100 * (6 / 8 + 1 / 3) / 2)
    assert found.miou18 == pytest.approx(100 * (6 / 8 + 1 / 3 + 1) / 3)
    assert math.isnan(found.iou[1])
    sparse = matrix.nonzero()
    counts = [[*map(int, place), int(matrix[tuple(place)])] for place in sparse]
    twice = of_runs([Evaluations([], [counts], 0)] * 2, 0, 21)
    assert torch.equal(twice, torch.stack([matrix, matrix]))
    assert accuracy(twice).miou9 == pytest.approx(found.miou9)
    assert found.pixels == pytest.approx(100 * 12 / 14)


def test_mean_iou_of_a_draw_is_that_of_its_common_confusion_matrix():
    one, two = torch.zeros(2, 3, 3, dtype=torch.int64)
    one[0, 0], one[0, 1] = 8, 2
    two[0, 0], two[2, 2], two[2, 1], two[1, 1] = 1, 3, 3, 4
    counts = torch.stack([one, two])
    draws = torch.tensor([[1.0, 0.0], [2 / 3, 1 / 3], [0.5, 0.5]], dtype=torch.float64)
    for place, drawn_images in enumerate(([0], [0, 0, 1], [0, 1])):
        drawn = accuracy(counts[drawn_images])
        assert float(miou18(draws[place : place + 1], counts)) == pytest.approx(drawn.miou18)
        assert float(miou9(draws[place : place + 1], counts)) == pytest.approx(drawn.miou9)
    assert float(miou18(draws[:1], counts)) != pytest.approx(accuracy(counts).miou18)


def test_results_are_kept_for_as_long_as_they_mean_the_same(tmp_path):
    path = tmp_path / "folder" / "kept.json"
    Kept(path, {"size": (3, 4)})["a"] = [1.5, None]
    assert Kept(path, {"size": (3, 4)})["a"] == [1.5, None]
    assert "a" not in Kept(path, {"size": (3, 5)})
    path.write_text("{")
    with pytest.raises(FileError, match=r"does not contain results .* remove it"):
        Kept(path, {})


PAPER_CSV = """dataset,figure,method,lambda,stepsize,x,y
voc,energy_vs_iteration,eFW,0.25,diminishing,0,0
voc,energy_vs_iteration,eFW,0.25,diminishing,1,-1533.5
voc,energy_vs_iteration,l2FW,1,1,0,0
voc,energy_vs_iteration,l2FW,1,1,1,-1500
voc,energy_vs_iteration,PGM,,1,1,-1300
voc,energy_vs_lambda_5_iterations,l2FW,0.1,1,0.1,-2039
voc,energy_vs_lambda_5_iterations,l2FW,0.2,1,0.2,-2044
cityscapes,energy_vs_iteration,MF,,1,1,-9
"""


def test_the_papers_curves(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text(PAPER_CSV)
    one, l2fw, other = paper(path, "energy_vs_iteration")
    assert (l2fw.label, l2fw.x) == ("l2FW 1", [0, 1])
    assert (one.label, one.x, one.y, one.solver) == (
        "eFW 0.25 (decreasing steps)",
        [0, 1],
        [0, -1533.5],
        "efw",
    )
    assert (other.label, other.solver, other.diminishing) == ("PGM", "fista", False)
    (swept,) = paper(path, "energy_vs_lambda_5_iterations")
    assert (swept.label, swept.x, swept.y) == ("l2FW", [0.1, 0.2], [-2039, -2044])


def test_figures_are_the_same_bytes_again():
    curve = Curve("MF", [0, 1, 2], [0.0, -1.0, -3.0], "mf")
    panels = [Panel("here", [curve], "step", from_x=1), Panel("there", [curve], "step", from_x=1)]
    assert lines(panels) == lines(panels)
    assert b"MF" in lines(panels)
    drawn = bars("title", {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.5, "y": math.nan}}, "mIoU")
    assert drawn.startswith(b"<?xml") and b"title" in drawn


def heights(drawn):
    """What the axis of each panel spans, from its ticks: the distance between two of them, per unit."""
    found = []
    for axes in re.split(rb'<g id="axes_', drawn)[1:]:
        part = axes.split(b'<g id="matplotlib.axis_', 2)[2]
        places = [float(y) for y in re.findall(rb'<use xlink:href="#\w+" x="[\d.]+" y="([\d.]+)"', part)]
        values = [
            float(t.replace("\u2212".encode(), b"-"))
            for t in re.findall(rb">([\d.\xe2\x88\x92]+)</text>", part)
        ]
        found.append(abs((places[1] - places[0]) / (values[1] - values[0])))
    return found


def test_panels_have_one_scale_wherever_their_curves_lie():
    here = Curve("MF", [0, 1, 2], [0.0, -700.0, -750.0], "mf")
    there = Curve("MF", [0, 1, 2], [0.0, -1500.0, -2000.0], "mf")
    wide = Curve("MF", [0, 1, 2], [0.0, -9000.0, 2000.0], "mf")
    one, other, own = heights(
        lines(
            [
                Panel("here", [here], "k"),
                Panel("paper", [there], "k"),
                Panel("all", [wide], "k", own_scale=True),
            ]
        )
    )
    assert one == pytest.approx(other, rel=1e-3) and own != pytest.approx(one, rel=0.5)


def outcome(name, judged, figures="5 is below 6"):
    rows = [{"solver": "MF <1>", "energy": -1.23456}]
    claim = Claim.MEAN_FIELD if judged else None
    return Outcome(
        name, "Title & all", "One image.", rows, rows, b"<svg/>", [Finding(figures, claim, judged)]
    )


def test_a_line_names_claim_figures_interval_and_verdict():
    (finding,) = outcome("one", Interval(-1.234, -2.0, 0.5, 7)).findings
    assert str(finding) == (
        "Cannot tell: MF is eFW with lambda 1. Here: 5 is below 6; difference -1.23, 95 % interval -2.00 to "
        "0.50 over 7 images."
    )
    (alone,) = outcome("one", Interval(-1.234, -math.inf, math.inf, 1, 0.5, below=True, name="cost")).findings
    assert str(alone) == (
        "Cannot tell: MF is eFW with lambda 1. Here: 5 is below 6; cost -1.23, to be below 0.5, no interval "
        "from one image."
    )
    assert str(outcome("one", Verdict.FAILS).findings[0]) == (
        "Not as in the paper: MF is eFW with lambda 1. Here: 5 is below 6."
    )
    assert str(outcome("one", None).findings[0]) == "Besides: 5 is below 6."


def test_files_of_an_outcome(tmp_path):
    paths = write(outcome("one", Interval(1.5, 0.25, 2.75, 7)), tmp_path)
    assert sorted(path.name for path in paths) == ["one-verdicts.csv", "one.csv", "one.svg", "one.txt"]
    said = (tmp_path / "one.txt").read_text()
    assert said.startswith("As in the paper: MF is eFW with lambda 1.") and said.count("\n") == 1
    (row,) = csv.DictReader(io.StringIO((tmp_path / "one.csv").read_text()))
    assert row == {"solver": "MF <1>", "energy": "-1.23456"}
    (row,) = csv.DictReader(io.StringIO((tmp_path / "one-verdicts.csv").read_text()))
    assert row == {
        "experiment": "one", "claim": "MF is eFW with lambda 1", "verdict": "As in the paper",
        "difference": "1.5", "low": "0.25", "high": "2.75", "bound": "0.0", "images": "7",
        "training runs": "1", "figures": "5 is below 6",
    }  # fmt: skip
    assert (tmp_path / "one.svg").read_bytes() == b"<svg/>"
    write(outcome("two", Interval(1.5, -math.inf, math.inf, 1)), tmp_path)
    (row,) = csv.DictReader(io.StringIO((tmp_path / "two-verdicts.csv").read_text()))
    assert (row["difference"], row["low"], row["high"]) == ("1.5", "", "")
    assert len(write(outcome("three", None), tmp_path)) == 3


def test_report_of_outcomes(tmp_path):
    each = [
        outcome("one", Interval(1.0, -1.0, 3.0, 4)),
        outcome("two", Verdict.HOLDS),
        outcome("three", Verdict.FAILS),
        outcome("four", None),
    ]
    write_report(tmp_path / "report.html", each)
    page = (tmp_path / "report.html").read_text()
    assert (
        "Of 3 claims of the paper 1 hold on these images, 1 do not, and for 1 the images cannot tell." in page
    )
    before, fails, holds, unknown = page.partition('id="one"')[0].split("<li ")
    assert "Claims of the paper" in before
    assert 'class="fails"' in fails and 'href="#three"' in fails
    assert 'class="holds"' in holds and 'href="#two"' in holds
    assert 'class="unknown"' in unknown and "Cannot tell" in unknown and "-1.00 to 3.00" in unknown
    assert "<td>Cannot tell</td>" in page and "<td>3.00</td>" in page
    assert "Title &amp; all" in page and "MF &lt;1&gt;" in page
    assert page.count("data:image/svg+xml;base64,") == 4 and "http" not in page


def test_where_data_and_paper_are_looked_for(made, tmp_path, monkeypatch):
    monkeypatch.delenv("FWCRF_DATA", raising=False)
    monkeypatch.delenv("FWCRF_PAPER", raising=False)
    with pytest.raises(FileError, match="--data, or in FWCRF_DATA"):
        data_folder(None)
    with pytest.raises(FileError, match=r"has no voc2012/val\.txt"):
        data_folder(tmp_path)
    monkeypatch.setenv("FWCRF_DATA", str(made))
    assert data_folder(None) == made
    assert paper_curves(None, tmp_path / "data") is None
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "curves.csv").write_text(PAPER_CSV)
    assert paper_curves(None, tmp_path / "data") == tmp_path / "paper" / "curves.csv"
    with pytest.raises(FileError, match="does not exist"):
        paper_curves(tmp_path / "none.csv", made)
