"""Ways to train, compared on images for choices."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fwcrf.apps.experiments import Setup, benchmark
from fwcrf.apps.experiments.benchmark import TEST, TRAIN, VAL
from fwcrf.apps.experiments.divided import WHOLE
from fwcrf.apps.experiments.joint_plans import CANDIDATES, Weights
from fwcrf.apps.experiments.joint_runs import Runs
from fwcrf.apps.experiments.learning_choices import (
    CHOICES,
    CNN,
    START,
    Choice,
    Model,
    Trials,
    principal,
    tuned_potts,
)

TUNED = Weights(1.0, 2.0, 10.0, 20.0)
BY_LABEL = {choice.label: choice for choice in CHOICES}


@pytest.fixture
def trials(made, tmp_path):
    runs = Runs(Setup(made, tmp_path, quick=True, num_workers=1), benchmark.camvid)
    return Trials(runs, TUNED, updates=2, crop=(16, 24))


def test_labels_differ():
    assert len(BY_LABEL) == len(CHOICES)
    assert not CNN.trained and not START.trained


@pytest.mark.parametrize("choice", [c for c in CHOICES if c.trained], ids=lambda c: c.label)
def test_every_choice_trains_its_own_parameters_and_no_others(trials, choice):
    torch.manual_seed(0)
    model = trials.model(choice)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trials.train(model, choice)
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    parts = {name.split(".")[0] for name in changed}
    assert ("net" in parts) == (choice.head_rate > 0)
    assert ("projection" in parts) == (choice.projection_rate > 0)
    if model.crf is not None:
        moved = model.crf.movement()
        assert set(moved) == set(choice.learnable) and min(moved.values()) > 0


def test_test_images_are_not_read(trials, monkeypatch):
    read = []
    sample = type(trials.runs.files).sample

    def recorded(self, split, index, network):
        read.append(split)
        return sample(self, split, index, network)

    monkeypatch.setattr(type(trials.runs.files), "sample", recorded)
    trials.complete([START, BY_LABEL["two weights, temperature, balanced"]])
    assert set(read) == {TRAIN, VAL} and TEST not in read


def test_results_are_kept_and_judged(trials, monkeypatch):
    choices = [CNN, START, Choice("two weights", ("weights",))]
    trials.complete(choices)
    rows = trials.rows(choices)
    assert [row["learned"] for row in rows] == ["network", "tuned Potts", "two weights"]
    assert rows[1]["above tuned Potts"] == 0 and rows[1]["pays"] == ""
    assert rows[2]["low"] <= rows[2]["above tuned Potts"] <= rows[2]["high"]
    assert rows[2]["pays"] in ("yes", "cannot tell", "no: it costs")
    assert rows[2]["moved"].startswith("weights ")
    monkeypatch.setattr(Trials, "train", lambda *_: pytest.fail("trained again"))
    trials.complete(choices)
    assert trials.rows(choices) == rows
    # Another number of steps is another result.
    assert "counts" not in replace(trials, updates=3).kept(choices[2])


def test_each_seed_of_a_training_has_a_file_and_an_untrained_choice_has_one(trials, monkeypatch):
    other, choice = replace(trials, seed=1), Choice("two weights", ("weights",))
    for each in (trials, other):
        each.complete([START, choice])
    assert trials.kept(START).path == other.kept(START).path
    assert trials.kept(choice)["counts"] and other.kept(choice)["counts"]
    monkeypatch.setattr(Trials, "__call__", lambda *_: pytest.fail("measured again"))
    trials.complete([START, choice])


def test_logits_of_the_frozen_network_are_found_once(trials, monkeypatch):
    """As many calls as images for choices, and the scores that each choice has by itself."""
    choices = [
        START,
        BY_LABEL["two weights"],
        replace(BY_LABEL["head, two weights, temperature"], head_rate=0.01),
    ]
    alone = []
    for choice in choices:
        model = trials.model(choice)
        if choice.trained:
            torch.manual_seed(trials.seed)
            model = trials.model(choice)
            trials.train(model, choice)
        alone.append(trials._counts(model, is_frozen=False))
    called = []
    logits = Model.logits

    def recorded(self, sample):
        called.append(sample.window)
        return logits(self, sample)

    monkeypatch.setattr(Model, "logits", recorded)
    for choice, expected in zip(choices, alone, strict=True):
        called.clear()
        trials(choice)
        assert trials.kept(choice)["counts"] == expected
        evaluated = [window for window in called if window == WHOLE]
        assert len(evaluated) == (0 if choice is choices[1] else len(trials.runs.benchmark.splits[VAL]))


def test_rare_classes_weigh_more_and_pixels_weigh_one_on_average(trials):
    dataset = trials.runs.benchmark.splits[TRAIN]
    labels = dataset[0][1]
    count = torch.bincount(labels[labels != 3], minlength=3)
    weight = trials._rarity
    assert weight.argmax() == count.argmin() and weight.argmin() == count.argmax()
    assert (weight * count).sum() / count.sum() == pytest.approx(1.0, abs=1e-5)


def test_principal_channels_have_unit_deviation(trials):
    few = [trials.runs.files.sample(TRAIN, 0, trials.runs.published)]
    rows = few[0].features[0].float().flatten(2)[0].T[::17]
    found = rows @ principal(few, 2).T
    assert torch.allclose(found.std(0), torch.ones(2), atol=1e-3)


def test_the_start_is_tuned_on_the_images_for_choices(trials):
    assert tuned_potts(trials.runs) in CANDIDATES
