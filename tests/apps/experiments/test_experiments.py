"""Every experiment from end to end, on made images and, where they are at hand, on real ones."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from shared_data import ROOT, needs

from fwcrf import solvers
from fwcrf.apps.evaluation import Confusion
from fwcrf.apps.experiments import EXPERIMENTS, Setup, energy, measure, run
from fwcrf.apps.experiments import learning as learning_module
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.learning import Learning, changes
from fwcrf.apps.experiments.per_class import L2FW
from fwcrf.apps.experiments.runs import SHOWN, Run
from fwcrf.apps.experiments.verdict import Verdict

LEARNING = ("fw-fails", "joint", "joint-voc", "per-class", "trainable")
INFERENCE = [name for name in EXPERIMENTS if name not in LEARNING]


def rows_of(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def by(rows, *names):
    return {tuple(row[name] for name in names): row for row in rows}


@pytest.fixture(scope="module")
def done(made, tmp_path_factory):
    """All experiments, one after the other, and the report."""
    output = tmp_path_factory.mktemp("all")
    setup = Setup(made, output, quick=True, num_workers=1)
    return output, {outcome.name: outcome for outcome in run(list(EXPERIMENTS), setup)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_files(done, name):
    output, outcomes = done
    rows = rows_of(output, name)
    assert len(rows) == len(outcomes[name].rows) > 0
    assert (output / f"{name}.svg").read_bytes().startswith(b"<?xml")
    said = (output / f"{name}.txt").read_text().splitlines()
    assert len(said) == len(outcomes[name].findings) > 0
    assert all(any(character.isdigit() for character in line) for line in said)
    for row in rows:
        for cell in row.values():
            assert cell not in ("nan", "inf", "-inf")


def test_report(done):
    output, outcomes = done
    page = (output / "report.html").read_text()
    for name, outcome in outcomes.items():
        assert f'id="{name}"' in page and outcome.title in page
    assert "The paper's own curves are not shown" in page.replace("&#x27;", "'")


def energies(folder):
    """Over all images, by solver and step."""
    rows = rows_of(folder, "energy")
    return by([row for row in rows if row["images"] == rows[0]["images"]], "solver", "step")


def test_energy(done):
    rows = energies(done[0])
    assert {float(row["energy"]) for (_, step), row in rows.items() if step == "0"} == {0.0}
    for step in range(21):
        assert rows["MF", str(step)]["energy"] == rows["eFW 1", str(step)]["energy"]
    first = {
        rows[solver, "1"]["energy"]
        for solver in ("MF", "FW", "eFW 0.25", "l2FW 1", "l2FW 1 (decreasing steps)")
    }
    assert len(first) == 1 and float(first.pop()) < 0


def test_every_solver_is_shown(done):
    rows = rows_of(done[0], "energy")
    on_all = {(row["solver"], row["step"]) for row in rows if row["images"] == rows[0]["images"]}
    on_part = {(row["solver"], row["step"]) for row in rows if row["images"] != rows[0]["images"]}
    table = rows_of(done[0], "potts-miou")
    accuracies = {row["solver"] for row in table if row["images"] == table[0]["images"]}
    for name in solvers.names():
        label = {"efw": "eFW 0.25", "l2fw": "l2FW 1"}.get(name, SHOWN.get(name, name))
        if name in {run.solver for run in energy.COSTLY}:
            assert {(label, str(k)) for k in range(11)} <= on_part - on_all
            assert label in {row["solver"] for row in table} - accuracies
        else:
            assert {(label, str(k)) for k in range(21)} <= on_all & on_part, name
            assert {"efw": "eFW 0.3"}.get(name, label) in accuracies, name


def test_lambda_agrees_with_energy(done):
    swept = by(rows_of(done[0], "lambda"), "solver", "lambda")
    each = energies(done[0])
    for solver in ("MF", "PGD", "PGM", "ADMM", "FW"):
        assert swept[solver, ""]["energy"] == each[solver, "5"]["energy"]
    steps = by(rows_of(done[0], "lambdas"), "solver", "lambda", "step")
    assert float(steps["eFW", "1.0", "5"]["energy"]) == float(each["MF", "5"]["energy"])
    assert float(steps["l2FW", "1.0", "20"]["energy"]) == float(each["l2FW 1", "20"]["energy"])


def test_tune_chooses_the_lowest(done):
    swept = by(rows_of(done[0], "lambda"), "solver", "lambda")
    for row in rows_of(done[0], "tune"):
        lowest = min(
            float(r["energy"]) for (solver, weight), r in swept.items() if solver == row["solver"] and weight
        )
        assert float(row["lowest over all"]) == pytest.approx(lowest)
        assert float(row["energy over all"]) >= lowest - 1e-9


def test_potts_begins_with_the_network_alone(done):
    rows = rows_of(done[0], "potts-miou")
    assert rows[0]["solver"] == "CNN"
    for count in {row["images"] for row in rows}:
        first, *others = (row for row in rows if row["images"] == count)
        assert first["solver"] == "CNN"
        alone = [row for row in others if row["solver"] == "CNN"]
        assert all(row["mIoU9"] == first["mIoU9"] for row in alone)
        # The logits are so noisy that any smoothing helps.
        assert all(float(row["mIoU9"]) > float(first["mIoU9"]) for row in others if row not in alone)


def test_vanilla_frank_wolfe_learns_nothing(done):
    rows = {row["solver"]: row for row in rows_of(done[0], "fw-fails")}
    for label in ("FW", "FW (Adam)"):
        assert float(rows[label]["largest gradient"]) == float(rows[label]["largest change of a weight"]) == 0
    assert float(rows["l2FW 1"]["largest gradient"]) > 0
    assert float(rows["l2FW 1"]["largest change of a weight"]) > 0
    # The made network has learned nothing; every solver of the paper's figure changes its weights.
    assert list(rows) == ["FW", "FW (Adam)", "MF", "PGD", "PGM", "ADMM", "l2FW 1"]
    assert all(float(rows[label]["largest change of a weight"]) > 0 for label in list(rows)[2:])
    assert [finding.verdict for finding in done[1]["fw-fails"].findings[:2]] == [Verdict.HOLDS] * 2


def test_joint_on_voc_has_the_rows_of_joint(done):
    """test_joint.py has the tests of joint itself."""
    models = [[row["model"] for row in rows_of(done[0], name)] for name in ("joint", "joint-voc")]
    assert models[0] == models[1] and "l2FW, joint (Adam)" in models[0]
    rows = {row["model"]: row for row in rows_of(done[0], "joint-voc")}
    for name in ("network", "weights", "compatibility"):
        assert float(rows["l2FW, joint (paper)"][f"change of {name}"]) > 0
    assert float(rows["l2FW, joint (Adam)"]["change of temperature"]) > 0


def test_an_untrained_start_is_not_that_of_the_trained_model(made, tmp_path):
    """Both are stored in one folder."""
    learning = Learning(Setup(made, tmp_path, quick=True))
    folder = learning.folder(learning.config(L2FW, 0))
    model = learning.start(L2FW)
    start = learning.untrained(L2FW)
    with torch.no_grad():
        model.cnn.get_parameter("logits.bias").copy_(torch.tensor([9.0, 0.0, 0.0]))
    trained = learning.counts(model, folder)
    assert start.shape == trained.shape == (4, 3, 3) and not torch.equal(start, trained)
    assert torch.equal(learning.untrained(L2FW), start) and torch.equal(
        learning.counts(model, folder), trained
    )
    assert trained[:, :, 1:].sum() == 0
    steps = model.crf.num_steps
    learning.counts(model, folder, steps + 2)
    assert model.crf.num_steps == steps


def test_counts_per_image_add_up_to_the_validation_of_the_training_loop(done, made):
    learning = Learning(Setup(made, done[0], quick=True))
    result = learning.train(L2FW, 0)
    with (result.folder / "validation.csv").open(newline="") as file:
        *_, last = csv.DictReader(file)
    confusion = Confusion(3)
    confusion.matrix += result.counts.sum(0)
    assert confusion.mean_iou() == pytest.approx(float(last["mean_iou"]), abs=1e-6)


def test_changes_of_parameters(made, tmp_path):
    learning = Learning(Setup(made, tmp_path, quick=True))
    before, after = learning.start(L2FW), learning.start(L2FW)
    assert changes(before, after) == {"network": 0, "weights": 0, "compatibility": 0}
    with torch.no_grad():
        after.crf.weights[0] += 0.25
        after.cnn.get_parameter("logits.bias")[1] -= 2
    found = changes(before, after)
    assert found == {"network": 2, "weights": pytest.approx(0.25), "compatibility": 0}


def test_every_line_with_a_verdict_is_a_known_claim_of_its_experiment(done):
    found = {}
    for name, outcome in done[1].items():
        for finding in outcome.findings:
            assert (finding.claim is None) == (finding.verdict is None)
            if finding.claim is not None:
                assert finding.claim.experiment == name
                assert finding.claim not in found
                found[finding.claim] = finding
                assert finding.claim.statement in str(finding) and finding.verdict.value in str(finding)
        assert len(rows_of(done[0], f"{name}-verdicts")) if outcome.verdicts else True
    # Quick experiments have no paper's curves, fewer solvers, and no setting of eFW.
    missing = {Claim.ORDER_EFW, Claim.ORDER_L2FW, Claim.LEARNED_EFW}
    assert set(found) == set(Claim) - missing


def test_quick_experiments_cannot_tell(done):
    """Four small images: solvers that are alike are not told apart."""
    verdicts = {row["claim"]: row for name in EXPERIMENTS if name != "lambdas"
                for row in rows_of(done[0], f"{name}-verdicts")}  # fmt: skip
    for claim in (Claim.BELOW_AFTER_5, Claim.RANGE_L2FW, Claim.OVERTAKEN, Claim.BEST_IN_POTTS):
        row = verdicts[claim.statement]
        assert row["verdict"] == "Cannot tell" and row["images"] == "4"
        assert float(row["low"]) <= float(row["bound"]) <= float(row["high"])
    assert verdicts[Claim.PAPER_ABOVE_CNN_9.statement]["verdict"] == "As in the paper"
    page = (done[0] / "report.html").read_text()
    assert "Cannot tell" in page and "the images cannot tell" in page


def test_one_image_cannot_tell(made, tmp_path):
    for outcome in run(["lambda", "long", "tune"], Setup(made, tmp_path, 1, quick=True, num_workers=1)):
        for finding in outcome.findings:
            assert finding.verdict is Verdict.UNKNOWN and "no interval from one image" in str(finding)


def test_learned_steps_move_and_fixed_ones_do_not(done):
    rows = {row["setting"]: row for row in rows_of(done[0], "trainable")}
    assert float(rows["lambda fixed, step 0.5 fixed"]["mean step"]) == 0.5
    assert float(rows["lambda fixed, step 0.5 learned"]["mean step"]) != 0.5
    assert float(rows["lambda fixed, step 0.5 learned"]["lambda"]) == 1
    assert float(rows["lambda learned, step 0.5 learned"]["lambda"]) != 1


def test_what_is_done_is_not_done_again(done, made, monkeypatch):
    output, outcomes = done

    def refuse(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "carry_out", refuse)
    again = run(["energy", "lambda"], Setup(made, output, quick=True, num_workers=1))
    assert [outcome.rows for outcome in again] == [outcomes["energy"].rows, outcomes["lambda"].rows]
    assert [outcome.verdicts for outcome in again] == [
        outcomes[name].verdicts for name in ("energy", "lambda")
    ]


def test_trained_models_are_not_evaluated_again(done, made, monkeypatch):
    output, outcomes = done

    def refuse(*_):
        raise AssertionError("evaluated again")

    monkeypatch.setattr(learning_module, "predict", refuse)
    (again,) = run(["per-class"], Setup(made, output, quick=True, num_workers=1))
    assert again.rows == outcomes["per-class"].rows
    assert again.conclusion == outcomes["per-class"].conclusion


def test_several_processes_see_the_same(made, tmp_path):
    names = ["image4", "image5"]
    runs = [Run("l2fw", 1.0, steps=(0, 2))]
    one, two = (
        measure.measure(Setup(made, tmp_path / str(n), quick=True, num_workers=n), names, runs)
        for n in (1, 2)
    )
    assert one == two


def test_a_damaged_image_is_named(made, tmp_path):
    import shutil

    broken = tmp_path / "data"
    shutil.copytree(made, broken)
    (broken / "voc2012" / "val" / "images" / "image5.jpg").write_bytes(b"no picture")
    setup = Setup(broken, tmp_path / "out", quick=True, num_workers=1)
    with pytest.raises(ValueError, match="image5"):
        run(["lambda"], setup)


@pytest.mark.posix
def test_a_killed_experiment_goes_on(made, tmp_path):
    """Killed as soon as something is kept, it ends with the rows of one that was left alone."""
    output = tmp_path / "killed"
    command = [sys.executable, "-m", "fwcrf", "experiment", "energy", "--data", made, "-o", output, "-j", "1"]
    command += ["--images", "3"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([str(part) for part in command], env=environment, stderr=subprocess.DEVNULL)
    folder = output / "kept" / "images"
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None and not list(folder.glob("*.json")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = {path: json.loads(path.read_text())["results"] for path in folder.glob("*.json")}
    assert kept and not (output / "energy.csv").exists()
    setup = Setup(made, output, 3, num_workers=1)
    (resumed,) = run(["energy"], setup)
    for path, results in kept.items():
        after = json.loads(path.read_text())["results"]
        assert {key: after[key] for key in results} == results
    (whole,) = run(["energy"], Setup(made, tmp_path / "whole", 3, num_workers=1))
    assert "cccp-qp1" not in {row["solver"] for row in whole.rows} and "without cccp-qp1" in whole.setting
    assert resumed.rows == whole.rows and resumed.conclusion == whole.conclusion
    assert resumed.verdicts == whole.verdicts


def test_costly_solvers_need_several_images(made):
    names = [str(number) for number in range(16)]
    full, quick = Setup(made, made), Setup(made, made, quick=True)
    assert energy.part_of(names[:7], full) == [] and energy.part_of(names[:8], full) == ["0"]
    assert energy.part_of(names, full) == ["0", "8"] and energy.part_of(names[:2], quick) == ["0"]
    assert energy.beside(["0"]) == ", and over 1 of them beside cccp-qp1"
    assert energy.beside([]) == ", without cccp-qp1 on fewer than 8 images"


@needs("voc2012/val/logits_deeplabv3", "weights")
@pytest.mark.parametrize("name", ["energy", "potts-miou"])
def test_on_real_images(name, tmp_path):
    (outcome,) = run([name], Setup(ROOT, tmp_path, 2, quick=True, num_workers=1))
    assert all(
        not math.isnan(value) for row in outcome.rows for value in row.values() if isinstance(value, float)
    )
    if name == "energy":
        means = by([{k: str(v) for k, v in row.items()} for row in outcome.rows], "solver", "step")
        for step in ("5", "10"):
            other = min(float(means[s, step]["energy"]) for s in ("MF", "PGD", "PGM", "ADMM"))
            assert all(float(means[s, step]["energy"]) < other for s in ("FW", "eFW 0.25", "l2FW 1"))
        assert [finding.verdict for finding in outcome.findings[3:5]] == [Verdict.HOLDS] * 2
        assert outcome.findings[0].verdict is Verdict.UNKNOWN  # two images, at a quarter of their size


def test_command(made, tmp_path, fwcrf_command):
    status, out, err = fwcrf_command(
        "experiment", "lambda", "--data", made, "-o", tmp_path / "out", "--quick", "--images", 2, "-j", 1
    )
    assert status == 0 and out.startswith("lambda\n") and "2 images, of which 0 are done" in err
    assert (tmp_path / "out" / "lambda.svg").exists()


def test_several_by_one_command_make_a_report_with_the_papers_curves(made, tmp_path, fwcrf_command):
    curves = ["dataset,figure,method,lambda,stepsize,x,y"]
    curves += [f"voc,energy_vs_lambda_5_iterations,eFW,{x},1,{x},{-2000 * x}" for x in (0.5, 1.0)]
    curves += [f"voc,energy_vs_iteration_per_lambda,{m},{w},1,{k},{-100 * k * (2 - w)}"
               for m in ("eFW", "l2FW") for w in (0.2, 0.4, 0.6, 0.8, 1.0) for k in range(21)]  # fmt: skip
    (tmp_path / "curves.csv").write_text("\n".join(curves))
    arguments = [
        "--data",
        made,
        "-o",
        tmp_path,
        "--quick",
        "--images",
        2,
        "-j",
        1,
        "--paper",
        tmp_path / "curves.csv",
    ]
    status, out, err = fwcrf_command("experiment", "lambda", "lambdas", *arguments)
    assert status == 0 and out.count("\n") == 2 + 4 and "--- lambdas took" in err
    page = (tmp_path / "report.html").read_text()
    assert 'id="lambda"' in page and 'id="lambdas"' in page and "are not shown" not in page
    assert b"PASCAL VOC val, the paper" in (tmp_path / "lambda.svg").read_bytes()
    assert "pairs that the paper tells apart" in out and "95 % interval" in out


@pytest.mark.parametrize(("arguments", "status", "said"), [
    (["lamda", "--data", "DATA", "-o", "OUT"], 2, "expected all, or one of energy, lambda"),
    (["energy", "--data", "OUT", "-o", "OUT"], 1, "has no voc2012/val.txt"),
    (["energy", "--data", "DATA"], 2, "Missing option"),
    (["energy", "--data", "DATA", "-o", "OUT", "--paper", "none.csv"], 1, "none.csv does not exist"),
])  # fmt: skip
def test_what_goes_wrong_is_said(made, tmp_path, fwcrf_command, arguments, status, said):
    places = {"DATA": made, "OUT": tmp_path}
    found, _, err = fwcrf_command("experiment", *(places.get(a, a) for a in arguments))
    assert found == status and said in " ".join(err.split()) and "Traceback" not in err
