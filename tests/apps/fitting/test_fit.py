"""``fwcrf fit``: gradients of settings through the layer, and their cross-validation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from in_this_process import counted_calls
from scenes import write_scenes

import fwcrf
from fwcrf.apps.batch.job import Reading, read_files
from fwcrf.apps.batch.manifest import read_manifest
from fwcrf.apps.files.settings import Settings, read_settings
from fwcrf.apps.fitting import Options, fit
from fwcrf.apps.fitting.descent import GROUPS, Model, descend, read_example, with_fitted
from fwcrf.apps.tuning.choice import FEWEST

# Weights that are far too small: the CRF hardly changes the scores.
START = Settings(
    solver={"name": "efw", "weight": 1.0},
    num_steps=3,
    kernels=[
        {"kind": "spatial", "xy": 1.0, "weight": 0.05},
        {"kind": "bilateral", "xy": 10.0, "color": 30.0, "weight": 0.1},
    ],
    balance=0.0,
)
FAST = Options(
    learn=("lambda", "weights", "bandwidths"), loss="lovasz", num_steps=10, crop=40, rate=0.5, penalty=0.001
)


@pytest.fixture
def calls(monkeypatch, num_threads):
    return counted_calls(monkeypatch)


@pytest.fixture
def items(tmp_path):
    return written(tmp_path, 3)


def written(folder, count):
    scenes = write_scenes(folder / "scenes", count)
    return read_manifest(scenes / "images", scenes / "scores", truth=scenes / "truth")


@pytest.mark.parametrize("solver", ["efw", "l2fw", "mf"])
def test_at_the_start_the_model_is_refine(items, solver):
    settings = replace(START, solver={"name": solver}, balance=0.3)
    example = read_example(items[0], Reading())
    model = Model(settings, example, Options(learn=GROUPS))
    p = model(example).exp().detach()
    inputs = read_files(items[0].image, items[0].scores)
    expected = inputs.refine(settings.arguments(), return_probabilities=True).probabilities
    torch.testing.assert_close(p.movedim(0, -1), torch.from_numpy(expected), atol=1e-3, rtol=1e-3)


def test_a_fitted_model_is_refine_with_the_fitted_settings(items):
    """Every group moved: the mapping from theta to the file of settings is the layer's."""
    example = read_example(items[0], Reading())
    model = Model(START, example, Options(learn=GROUPS))
    with torch.no_grad():
        model.theta.copy_(torch.linspace(-0.5, 1.5, len(model.theta)))
    point, matrix = model.found()
    assert {"lambda", "spatial.xy", "bilateral.weight.2", "bilateral.color"} <= point.keys()
    settings = with_fitted(START, point, matrix, 3)
    inputs = read_files(items[0].image, items[0].scores)
    expected = inputs.refine(settings.arguments(), return_probabilities=True).probabilities
    p = model(example).exp().detach().movedim(0, -1)
    torch.testing.assert_close(p, torch.from_numpy(expected), atol=2e-3, rtol=2e-3)
    unmoved = inputs.refine(START.arguments(), return_probabilities=True).probabilities
    assert np.abs(unmoved - expected).max() > 0.1


@pytest.mark.parametrize("learn", [("weights",), GROUPS], ids=len)
def test_bandwidths_are_in_units_of_the_image(items, learn):
    inputs = read_files(items[0].image, items[0].scores)
    given = {**START.arguments(), "spacing": (2.0, 0.5), "return_probabilities": True}
    _, expected = fwcrf.refine(inputs.picture.values, inputs.values, **given)
    example = replace(read_example(items[0], Reading()), spacing=(2.0, 0.5))
    p = Model(START, example, Options(learn=learn))(example).exp().detach().movedim(0, -1)
    torch.testing.assert_close(p, torch.from_numpy(expected), atol=1e-3, rtol=1e-3)


def test_every_parameter_has_the_gradient_of_difference_quotients(items):
    example = read_example(items[0], Reading())
    torch.manual_seed(0)
    model = Model(START, example, Options(learn=("lambda", "weights", "compatibility")))
    projection = torch.randn(3, 40, 50)

    def value():
        return (model(example).exp() * projection).sum()

    (g,) = torch.autograd.grad(value(), model.theta)
    with torch.no_grad():
        for i in range(len(model.theta)):
            ends = []
            for side in (0.01, -0.01):
                model.theta[i] += side
                ends.append(float(value()))
                model.theta[i] -= side
            quotient = (ends[0] - ends[1]) / 0.02
            assert float(g[i]) == pytest.approx(quotient, rel=0.03, abs=0.05)
    assert (g != 0).all()


@pytest.mark.parametrize("loss", ["lovasz", "cross-entropy"])
def test_weights_that_are_too_small_grow_and_labels_improve(items, loss):
    """The truth is smooth and the scores are noisy: only larger weights lower the loss."""
    examples = [read_example(item, Reading()) for item in items]
    model, losses = descend(examples, START, replace(FAST, loss=loss, learn=("weights",)))
    point, matrix = model.found()
    assert point["bilateral.weight"] > 2 * 0.1 and matrix is None
    assert np.mean(losses[-3:]) < 0.9 * losses[0]
    better = with_fitted(START, point, None, None)
    wrong = []
    for settings in (START, better):
        found = [read_files(i.image, i.scores).refine(settings.arguments()).labels for i in items]
        wrong.append(np.mean([(f != e.truth.numpy()).mean() for f, e in zip(found, examples, strict=True)]))
    assert wrong[1] < 0.7 * wrong[0]


def test_the_fit_is_taken_if_images_without_part_in_it_gain(tmp_path, calls, fwcrf_command):
    items = written(tmp_path, FEWEST)
    journal = tmp_path / "j.jsonl"
    options = replace(FAST, learn=("lambda", "weights"))
    given = {"num_folds": 2, "journal": journal}
    fitted = fit(items, START, options=options, **given)
    assert fitted.choice.index == 1 and not fitted.choice.reason
    assert fitted.choice.miou > fitted.choice.miou_start + 0.02
    assert len(fitted.folds) == 2
    assert fitted.settings.kernels[1]["weight"] == fitted.point["bilateral.weight"] > 0.2
    # Nothing is done again, and the end of a line that was cut is skipped.
    calls.clear()
    path = tmp_path / "j-fits.jsonl"
    assert fit(items, START, options=options, **given) == fitted
    assert calls == []
    path.write_bytes(path.read_bytes()[:-20])
    assert fit(items, START, options=options, **given) == fitted
    assert len(calls) == 1


def test_a_fit_that_gains_nothing_keeps_the_start(tmp_path, calls):
    items = written(tmp_path, FEWEST)
    fitted = fit(items, START, options=replace(FAST, num_steps=1, rate=0.0), num_folds=2)
    assert fitted.choice.index == 0 and fitted.choice.reason
    assert fitted.settings == START and fitted.point is None


def test_refusals(items, calls):
    with pytest.raises(ValueError, match="learn has 'mu'; expected any of lambda, weights"):
        fit(items, START, options=Options(learn=("mu",)))
    with pytest.raises(ValueError, match="a fit needs images with true labels"):
        fit([replace(items[0], truth=None)], START)
    with pytest.raises(ValueError, match="num_folds=1"):
        fit(items, START, num_folds=1)
    with pytest.raises(fwcrf.apps.files.FileError, match="nothing to fit"):
        fit(items, replace(START, solver={"name": "mf"}), options=Options(learn=("lambda",)))


def test_the_command(tmp_path, calls, fwcrf_command):
    written(tmp_path, 3)
    scenes, best = tmp_path / "scenes", tmp_path / "best.yaml"
    given = ("fit", scenes / "images", "-s", scenes / "scores", "-t", scenes / "truth", "-o", best)
    more = ("--folds", 3, "--updates", 2, "--crop", 30, "--learn", "weights", "--learn", "compatibility")
    status, out, err = fwcrf_command(*given, *more)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == "mean IoU over 3 images, 3 folds; fitted: weights, compatibility"
    assert [line.split()[0] for line in lines[1:5]] == ["scores", "start", "cross-validated", "parameter"]
    assert "spatial.weight" in out and "The start is kept: 3 images are too few" in lines[-1]
    assert read_settings(best).mapping() == Settings().mapping()
    assert [line[2:] for line in best.read_text().splitlines() if line.startswith("#")] == lines
    for wrong, said in (
        (("--learn", "mu"), "expected any of lambda"),
        (("-o", tmp_path / "a.json"), "must end in .yaml"),
    ):
        status, _, err = fwcrf_command(*given, *wrong)
        assert status == 2 and said in " ".join(err.split())
