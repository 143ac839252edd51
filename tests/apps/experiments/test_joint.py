"""Network and CRF trained together: rows, resumption, choices and verdicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from shared_data import ROOT, needs

from fwcrf.apps.experiments import Setup, benchmark, joint, joint_training, run
from fwcrf.apps.experiments.benchmark import TEST, TRAIN, VAL
from fwcrf.apps.experiments.claims import Claim
from fwcrf.apps.experiments.divided import WHOLE
from fwcrf.apps.experiments.feature_files import FeatureFiles
from fwcrf.apps.experiments.joint import CNN, TUNE, TUNED_POTTS, start_of, then_potts
from fwcrf.apps.experiments.joint_plans import (
    BY_ADAM,
    BY_PAPER,
    CANDIDATES,
    PAPER,
    Plan,
    Weights,
    head_alone,
    model,
    potts,
    recipes_for,
    together,
)
from fwcrf.apps.experiments.joint_runs import Result, Runs, Task
from fwcrf.apps.experiments.joint_scores import Borders, Scored, measured
from fwcrf.apps.experiments.joint_training import crop
from fwcrf.apps.experiments.verdict import Verdict
from fwcrf.apps.files import FileError

SOLVERS = ("l2FW", "eFW 0.7", "MF", "PGD")


def setup_of(made, output, **given) -> Setup:
    return Setup(made, output, **{"quick": True, "num_workers": 1, **given})


@pytest.fixture(scope="module")
def done(made, tmp_path_factory):
    output = tmp_path_factory.mktemp("joint")
    (outcome,) = run(["joint"], setup_of(made, output, seeds=(0, 1)))
    return output, outcome


def rows_of(outcome):
    return {(row["model"], row["run"]): row for row in outcome.rows}


def test_every_row_is_there(done):
    expected = ["CNN", "Potts, paper", "Potts, tuned"]
    for recipe in ("paper", "Adam"):
        head = f"CNN, trained on ({recipe})"
        expected += [head, f"{head}, then tuned Potts"]
        for solver in SOLVERS[:3]:
            expected += [f"{solver}, joint ({recipe}), untrained", f"{solver}, joint ({recipe})"]
    assert [row["model"] for row in done[1].summary] == expected
    runs = {row["model"]: row["runs"] for row in done[1].summary}
    assert runs["CNN"] == runs["Potts, tuned"] == runs["l2FW, joint (Adam), untrained"] == 1
    assert runs["l2FW, joint (paper)"] == runs["CNN, trained on (Adam), then tuned Potts"] == 2
    for row in done[1].rows:
        for measure in ("mIoU3", "accuracy", "boundary F", "trimap IoU", "sky", "road", "car"):
            assert 0 <= row[measure] <= 100, (row["model"], measure)


def test_all_solvers_are_trained_outside_of_quick_mode(made, tmp_path):
    labels = list(joint.listed(PAPER, setup_of(made, tmp_path, quick=False)))
    for solver in SOLVERS:
        for recipe in ("paper", "Adam"):
            label = f"{solver}, joint ({recipe})"
            assert label in labels and start_of(label) in labels


def test_recipes_have_the_epochs_of_their_benchmark(made, tmp_path):
    """On VOC, the recipe by Adam has four epochs."""
    for title, found in (("CamVid", [3, 2]), ("VOC", [3, 4])):
        recipes = recipes_for(title)
        assert [recipe.epochs for recipe in recipes] == found
        tasks = joint.listed(PAPER, setup_of(made, tmp_path), recipes)
        heads = [tasks[head_alone(recipe).label][0].plan for recipe in recipes]
        assert [plan.recipe.epochs for plan in heads] == found


def test_seeds_are_trained_one_after_another_each_with_its_longest_training_first(made, tmp_path):
    given = setup_of(made, tmp_path, quick=False, seeds=(2, 0))
    trainings = [t for each in joint.listed(PAPER, given).values() for t in each if t.kind == "trained"]
    order = joint.in_order(trainings)
    assert sorted(map(str, order)) == sorted(map(str, trainings))
    assert [task.seed for task in order] == [2] * 10 + [0] * 10
    for half in (order[:10], order[10:]):
        epochs = [task.plan.recipe.epochs * (3 if task.plan.solver else 1) for task in half]
        assert epochs == sorted(epochs, reverse=True)


def test_changes_of_parameters_are_shown(done):
    rows = rows_of(done[1])
    for key in ("network", "weights", "compatibility"):
        assert rows["l2FW, joint (paper)", 0][f"change of {key}"] > 0
        assert rows["l2FW, joint (paper), untrained", 0][f"change of {key}"] is None
    adam = rows["MF, joint (Adam)", 1]
    assert adam["change of temperature"] > 0 and adam["change of weights"] > 0
    assert adam["change of compatibility"] is None
    head = rows["CNN, trained on (Adam)", 0]
    assert head["change of network"] > 0 and head["change of weights"] is None
    said = done[1].conclusion
    assert "the largest changes of parameters in training are: CNN, trained on (paper) network by" in said
    assert "training changes mIoU3 by: l2FW, joint (paper) " in said


def test_seeds_differ_and_each_has_its_start(done):
    rows = rows_of(done[1])
    changes = [rows["l2FW, joint (paper)", seed]["change of weights"] for seed in (0, 1)]
    assert changes[0] != changes[1]


def test_results_are_not_computed_again(done, made, monkeypatch):
    output, outcome = done

    def refuse(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(joint_training, "backward", refuse)
    monkeypatch.setattr(Runs, "_scores", refuse)
    monkeypatch.setattr(Runs, "_best", refuse)
    (again,) = run(["joint"], setup_of(made, output, seeds=(0, 1)))
    assert again.rows == outcome.rows and again.verdicts == outcome.verdicts


def test_more_seeds_keep_the_first(done, made):
    (one,) = run(["joint"], setup_of(made, done[0]))
    rows = rows_of(done[1])
    assert all(row == rows[row["model"], 0] for row in one.rows)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_run_killed_in_training_ends_as_if_it_was_not(made, tmp_path, monkeypatch, steps):
    monkeypatch.setattr(joint_training, "CHECKPOINT_EVERY", 1)
    task = Task("trained", replace(together("l2fw", BY_ADAM, PAPER), recipe=replace(BY_ADAM, epochs=2)), 3)

    def runs(folder):
        return Runs(setup_of(made, tmp_path / folder, quick=False), benchmark.camvid)

    whole, broken = runs("whole"), runs("broken")
    whole.complete([task])
    seen = []
    backward = joint_training.backward

    def killed(*given):
        seen.append(given)
        if len(seen) > steps:
            raise KeyboardInterrupt
        backward(*given)

    monkeypatch.setattr(joint_training, "backward", killed)
    with pytest.raises(KeyboardInterrupt):
        broken.complete([task])
    monkeypatch.setattr(joint_training, "backward", lambda *given: seen.append(given) or backward(*given))
    broken.complete([task])
    # Five images, two a step, two epochs: four steps, and the step that was killed.
    assert len(seen) == 4 + 1
    one, two = whole.result(task), broken.result(task)
    assert one.moved == two.moved and torch.equal(one.scored.counts, two.scored.counts)


def test_a_failure_names_its_model(made, tmp_path):
    plan = replace(head_alone(BY_ADAM), recipe=replace(BY_ADAM, head_rate=1e30))
    with pytest.raises(FileError, match=r"CNN, trained on \(Adam\), seed 0: the loss is"):
        Runs(setup_of(made, tmp_path, quick=False), benchmark.camvid).complete([Task("trained", plan)])


def test_several_processes_compute_the_same(made, tmp_path):
    tasks = [Task("trained", head_alone(BY_ADAM)), Task("trained", together("mf", BY_PAPER, PAPER))]
    found = []
    for workers in (1, 2):
        runs = Runs(setup_of(made, tmp_path / str(workers), num_workers=workers), benchmark.camvid)
        runs.complete(tasks)
        found.append([runs.result(task) for task in tasks])
    for one, two in zip(*found, strict=True):
        assert one.moved == two.moved and torch.equal(one.scored.counts, two.scored.counts)


def test_epochs_are_limited(made, tmp_path):
    for epochs, found in ((None, 3), (2, 2), (20, 3)):
        runs = Runs(setup_of(made, tmp_path, quick=False, epochs=epochs), benchmark.camvid)
        assert runs._shortened(head_alone(BY_PAPER)).recipe.epochs == found
    short, long = (
        Runs(setup_of(made, tmp_path, quick=False, epochs=n), benchmark.camvid)._key(
            Task("trained", head_alone(BY_PAPER))
        )
        for n in (2, 3)
    )
    assert short != long


def test_the_forecast_is_of_trainings_that_are_not_finished(made, tmp_path):
    said = []
    setup = setup_of(made, tmp_path, progress=lambda line=None, count=1: said.append(line))
    runs = Runs(setup, benchmark.camvid)
    tasks = [Task("trained", head_alone(BY_ADAM)), Task("untrained", potts(PAPER, "Potts"))]
    seconds = runs.forecast(tasks)
    assert list(seconds) == ["CNN, trained on (Adam), seed 0"] and min(seconds.values()) > 0
    joint.tell_forecast(seconds, setup)
    assert said[-1].startswith("forecast: 0 minutes of one core for 1 trainings")
    runs.complete(tasks)
    assert not runs.forecast(tasks)


# --- models -----------------------------------------------------------------------------------------


def test_the_papers_recipe_has_its_parameters(made, tmp_path):
    data = benchmark.camvid(setup_of(made, tmp_path))
    for solver, skip in (("l2fw", 0.5), ("efw", 0.5), ("pgd", 0.5), ("mf", 0.0)):
        free = model(together(solver, BY_PAPER, Weights(2, 2, 30, 5)), data.network(), 3, 0)
        assert sum(p.numel() for p in free.of_crf().values()) == 3 * 3**2
        assert free.crf.skip == skip and free.log_temperature is None
        assert together(solver, BY_PAPER, Weights(2, 2, 30, 5)).potts == PAPER
        small = model(together(solver, BY_ADAM, Weights(2, 4, 30, 5)), data.network(), 3, 0)
        assert sorted(small.of_crf()) == ["temperature", "weights"] and small.crf.skip == skip
        assert small.of_crf()["weights"].tolist() == [2, 4]
    assert (BY_PAPER.head_rate, BY_PAPER.crf_rates["l2fw"], BY_PAPER.crf_rates["mf"]) == (1e-4, 0.01, 0.1)
    alone = model(head_alone(BY_ADAM), data.network(), 3, 0)
    assert not alone.of_crf() and all("encoder" not in name for name in alone.of_head())


def test_the_temperature_divides_the_logits(made, tmp_path):
    data = benchmark.camvid(setup_of(made, tmp_path))
    found = model(together("mf", BY_ADAM, PAPER), data.network(), 3, 0)
    image, logits = torch.full((1, 3, 6, 8), 128.0), torch.randn(1, 3, 6, 8)
    before = found.crf(image, logits / 2)
    with torch.no_grad():
        found.log_temperature.fill_(torch.tensor(2.0).log())
    assert torch.allclose(found.refine(image, logits), before, atol=1e-5)


@pytest.mark.parametrize("make", [benchmark.camvid, benchmark.voc])
def test_features_in_files_give_the_networks_logits(made, tmp_path, make):
    data = make(setup_of(made, tmp_path))
    network, files = data.network(), FeatureFiles(tmp_path, data)
    assert files.missing(TEST) == list(range(len(data.splits[TEST])))
    sample = files.sample(TEST, 1, network)
    assert files.missing(TEST) == [k for k in range(len(data.splits[TEST])) if k != 1]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in network.net.normalization)
    with torch.no_grad():
        logits = network.head(sample.features, sample.size, WHOLE)
        whole = network.net((sample.image - mean) / std)[:, :3]
    assert logits.shape == whole.shape == (1, 3, *sample.size)
    assert (logits - whole).abs().max() < 0.01 * max(1.0, float(whole.abs().max()))
    again = files.sample(TEST, 1, None)  # type: ignore[arg-type] # no network: the file is read
    assert all(torch.equal(a, b) for a, b in zip(sample.features, again.features, strict=True))


def test_windows_are_aligned_and_reach_every_pixel():
    rng = np.random.default_rng(0)
    seen = torch.zeros(37, 50, dtype=torch.bool)
    for _ in range(200):
        rows, columns = crop((37, 50), (16, 24), rng)
        assert rows.start % 8 == columns.start % 8 == 0
        assert 0 < rows.stop - rows.start <= 16 and 0 < columns.stop - columns.start <= 24
        seen[rows, columns] = True
    assert seen.all()
    assert crop((12, 20), (16, 24), rng) == (slice(0, 12), slice(0, 20))


@pytest.mark.parametrize("make", [benchmark.camvid, benchmark.voc])
def test_logits_of_a_window_are_those_of_the_whole_image(made, tmp_path, make):
    """Equal for DeepLabv3, whose head sees the whole image; alike for ESPNet, whose head sees the window."""
    data = make(setup_of(made, tmp_path))
    network = data.network()
    whole = FeatureFiles(tmp_path, data).sample(TEST, 0, network)
    window = crop(whole.size, (16, 24), np.random.default_rng(3))
    part = whole.part(window)
    assert torch.equal(part.image, whole.image[..., window[0], window[1]])
    assert torch.equal(part.truth, whole.truth[..., window[0], window[1]])
    with torch.no_grad():
        logits = network.head(whole.features, whole.size, WHOLE)[..., window[0], window[1]]
        own = network.head(part.features, part.size, part.window)
    assert own.shape == logits.shape == (1, 3, *part.truth.shape[1:])
    if data.title == "VOC":
        assert torch.equal(own, logits)
    else:
        # Zeros beyond the window change every logit of so small a window, though not by much.
        assert torch.corrcoef(torch.stack([own.flatten(), logits.flatten()]))[0, 1] > 0.8


def test_training_crops_differ_by_epoch_and_are_the_same_in_another_run(made, tmp_path, monkeypatch):
    recipe = replace(BY_ADAM, epochs=2, crop=(16, 24))
    task = Task("trained", replace(head_alone(BY_ADAM), recipe=recipe), 1)
    backward, seen = joint_training.backward, []

    def recorded(model, batch, ignore):
        seen.extend(batch)
        backward(model, batch, ignore)

    monkeypatch.setattr(joint_training, "backward", recorded)
    for folder in ("one", "two"):
        Runs(setup_of(made, tmp_path / folder, quick=False), benchmark.camvid).complete([task])
    windows = [str(sample.window) for sample in seen]
    assert windows[: len(windows) // 2] == windows[len(windows) // 2 :]
    assert len(set(windows)) > 1
    assert all(sample.truth.shape[1] <= 16 and sample.truth.shape[2] <= 24 for sample in seen)


def test_splits_of_voc_have_no_image_in_common(made, tmp_path):
    data = benchmark.voc(setup_of(made, tmp_path))
    names = [data.splits[split].names for split in (TRAIN, VAL, TEST)]
    assert list(map(len, names)) == [3, 1, 4] and len(set().union(*names)) == 8
    few = benchmark.voc(setup_of(made, tmp_path, num_images=2))
    assert [len(few.splits[split]) for split in (TRAIN, VAL, TEST)] == [2, 1, 2]


def test_the_tuned_potts_model_is_the_best_on_val(made, tmp_path):
    runs = Runs(setup_of(made, tmp_path), benchmark.camvid)
    runs.complete([TUNE])
    data = runs.benchmark
    scores = []
    for weights in CANDIDATES:
        found = model(potts(weights, ""), data.network(), 3, 0)
        values = []
        for index in range(len(data.splits[VAL])):
            sample = runs.files.sample(VAL, index, found.network)
            with torch.no_grad():
                values.append(
                    measured(
                        found(sample)[0].argmax(0), sample.truth[0], Borders.of(sample.truth[0], 3), 3, 3
                    )
                )
        scores.append(Scored.of(values, 3).mean_iou(data.counted))
    assert runs.weights(TUNE) == CANDIDATES[scores.index(max(scores))]
    assert CANDIDATES[0] == PAPER


@pytest.mark.parametrize("missing", ["camvid/test.txt", "weights/espnet_p2q8_camvid.safetensors"])
def test_missing_data_is_named(made, tmp_path, missing):
    import shutil

    shutil.copytree(made, tmp_path / "data")
    (tmp_path / "data" / missing).unlink()
    with pytest.raises(FileError, match=f"has no {missing}; leave out the experiment joint"):
        run(["energy", "joint"], setup_of(tmp_path / "data", tmp_path / "out"))
    assert not (tmp_path / "out" / "energy.csv").exists()


# --- verdicts ---------------------------------------------------------------------------------------


def result(right: list[int]) -> Result:
    """An image per entry, with so many of its 100 pixels of class 0 right, and 100 pixels of class 1."""
    counts = torch.tensor([[[r, 100 - r, 0], [0, 100, 0], [0, 0, 50]] for r in right])
    return Result(Scored(counts, counts, torch.ones(len(right), 3)), {}, 0.0)


def judged(made, tmp_path, **right):
    """Findings by claim, where every model has 50 right pixels of each of 8 images unless given."""
    data = benchmark.camvid(setup_of(made, tmp_path))
    labels = [CNN, *joint.listed(PAPER, setup_of(made, tmp_path))]
    given = {label.replace("_", " "): value for label, value in right.items()}
    found = {label: [result(given.get(label, [50, 52] * 4))] for label in labels}
    means = {label: each[0].scored.mean_iou(data.counted) for label, each in found.items()}
    return {f.claim: f for f in joint.findings(data, found, means) if f.claim}


def test_equal_models_cannot_be_told_apart(made, tmp_path):
    found = judged(made, tmp_path)
    assert {claim.experiment for claim in found} == {"joint"}
    assert set(found) == {claim for claim in Claim if claim.experiment == "joint"}
    assert {finding.verdict for finding in found.values()} == {Verdict.UNKNOWN}


def test_a_model_that_is_better_on_every_image_is(made, tmp_path):
    found = judged(made, tmp_path, **{TUNED_POTTS: [70, 71] * 4})
    assert found[Claim.CAMVID_POTTS_ABOVE_CNN].verdict is Verdict.HOLDS
    for claim in (Claim.CAMVID_PAPER_ABOVE_POTTS, Claim.CAMVID_ADAM_ABOVE_POTTS):
        assert found[claim].verdict is Verdict.FAILS and found[claim].interval.value < 0
    assert found[Claim.CAMVID_ADAM_PAYS].verdict is Verdict.UNKNOWN


def test_joint_training_pays_only_if_it_beats_the_head_with_potts_after_it(made, tmp_path):
    best, head = joint.joint("l2fw", BY_ADAM), then_potts(head_alone(BY_ADAM).label)
    found = judged(made, tmp_path, **{best: [80] * 8, head: [90] * 8})
    assert found[Claim.CAMVID_ADAM_ABOVE_POTTS].verdict is Verdict.HOLDS
    assert found[Claim.CAMVID_ADAM_PAYS].verdict is Verdict.FAILS
    found = judged(made, tmp_path, **{best: [80] * 8, head: [70] * 8})
    assert found[Claim.CAMVID_ADAM_PAYS].verdict is Verdict.HOLDS


def test_both_frank_wolfe_variants_must_be_above_mean_field(made, tmp_path):
    names = {solver: joint.joint(solver, BY_PAPER) for solver in ("l2fw", "efw", "mf")}
    claim = Claim.CAMVID_PAPER_ABOVE_MF
    both = {names["l2fw"]: [80] * 8, names["efw"]: [70] * 8}
    assert judged(made, tmp_path, **both)[claim].verdict is Verdict.HOLDS
    one = {names["l2fw"]: [80] * 8, names["efw"]: [40] * 8}
    assert judged(made, tmp_path, **one)[claim].verdict is Verdict.FAILS
    assert judged(made, tmp_path, **one)[Claim.CAMVID_PAPER_BEST].verdict is Verdict.HOLDS


def test_noise_between_images_is_no_difference(made, tmp_path):
    found = judged(made, tmp_path, **{TUNED_POTTS: [20, 80, 52, 49, 90, 15, 55, 50]})
    assert found[Claim.CAMVID_POTTS_ABOVE_CNN].verdict is Verdict.UNKNOWN


@needs("camvid", "weights")
def test_the_published_network_is_that_of_the_rows(tmp_path):
    """Two real images: features of half precision change next to no label."""
    data = benchmark.camvid(Setup(ROOT, tmp_path, 2))
    network, files = data.network(), FeatureFiles(tmp_path, data)
    sample = files.sample(TEST, 0, network)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in network.net.normalization)
    with torch.no_grad():
        labels = model(Plan(CNN), network, 11, 0)(sample).argmax(1)
        whole = network.net((sample.image - mean) / std)[:, :11].argmax(1)
    assert (labels == whole).float().mean() > 0.999
    valid = sample.truth != 11
    assert (labels == sample.truth)[valid].float().mean() > 0.8
