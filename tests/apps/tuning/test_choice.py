"""The choice among candidates, on made areas of images with two labels."""

import numpy as np
import pytest

from fwcrf.apps.tuning import choice
from fwcrf.apps.tuning.choice import FEWEST, _judged, choose, mean_iou, scores, standard_error


def areas_of(errors):
    """Areas of images where both labels have the same share of wrong pixels: ``(...)`` to ``(..., 3, 2)``."""
    right = np.rint(10_000 * (1 - np.asarray(errors)))
    return np.stack([np.stack([right, right], -1), *[np.full((*right.shape, 2), 10_000.0)] * 2], -2)


def made(rng, effects, num_images, spread=0.3):
    """Areas of candidates: image i has a difficulty, candidate c changes its error by e^(effect + noise)."""
    difficulty = rng.uniform(-4, -1, num_images)
    noise = spread * rng.normal(size=(len(effects), num_images))
    noise[0] = 0
    return areas_of(np.exp(difficulty - np.asarray(effects)[:, None] + noise).clip(0, 1))


def test_the_mean_iou_of_labels_in_the_truth():
    rng = np.random.default_rng(0)
    truth, labels = rng.integers(0, 3, (2, 500))
    both = [np.sum((truth == c) & (labels == c)) for c in range(4)]
    areas = np.array([both, np.bincount(truth, minlength=4), np.bincount(labels, minlength=4)])
    expected = [((truth == c) & (labels == c)).sum() / ((truth == c) | (labels == c)).sum() for c in range(3)]
    assert mean_iou(areas) == pytest.approx(np.mean(expected))


def test_a_better_candidate_is_chosen_and_its_gain_is_that_of_images_not_used():
    found = choose(made(np.random.default_rng(0), [0, -0.2, 0.5, 0.1], 12), np.array([0, 1, 1, 1]))
    assert (found.index, found.reason) == (2, "")
    assert found.gain == pytest.approx(0.5, abs=0.3)
    assert found.gain > 3 * found.error > 0
    assert found.miou > found.miou_start + found.miou_error > found.miou_start


@pytest.mark.parametrize("num_images", [10, 20])
def test_noise_is_seldom_chosen_and_never_reported_as_a_gain(num_images):
    """40 candidates as good as the start: the best of them seems better on the images that chose it."""
    rng = np.random.default_rng(num_images)
    distances = np.array([0.0, *np.linspace(0.2, 0.7, 39)])
    chosen, seen, unseen = [], [], []
    for _ in range(30):
        areas = made(rng, np.zeros(40), num_images)
        _, gains, reason = _judged(areas, distances)
        chosen.append(not reason)
        seen.append((scores(areas) - scores(areas[0])).mean(1).max())
        unseen.append(gains.mean())
    assert np.mean(chosen) < 0.2
    assert np.mean(seen) > 0.1
    assert np.mean(unseen) < 0.02


def test_a_result_is_not_worse_than_the_start_on_other_images():
    """Most of the candidates are worse, and few are better."""
    rng = np.random.default_rng(3)
    effects = np.concatenate([[0], rng.uniform(-0.6, 0.1, 40)])
    found = [_judged(made(rng, effects, 12, 0.5), np.abs(effects)) for _ in range(30)]
    real = [0.0 if reason else effects[index] for index, _, reason in found]
    assert min(real) > -0.1
    assert np.mean(real) > -0.01


def test_the_reported_mean_iou_counts_the_preference_for_the_start():
    """Doubtful gains are reported as less than they are on the images that show them."""
    rng = np.random.default_rng(5)
    found = [(choose(areas, np.array([0.0, 1.0])), areas) for areas in
             (made(rng, [0, 0.1], 12, 0.3) for _ in range(12))]  # fmt: skip
    reported = [one.miou - one.miou_start for one, _ in found]
    seen = [np.diff(mean_iou(areas.sum(1)))[0] for _, areas in found]
    assert np.mean(reported) < 0.7 * np.mean(np.maximum(seen, 0))
    assert all(one.miou_error > 0 for one, _ in found if one.index)


def test_of_equal_candidates_the_nearest_is_chosen():
    areas = np.repeat(made(np.random.default_rng(1), [0, 0.2], 20, 0.3), [1, 3], axis=0)
    for nearest in (1, 2, 3):
        distances = np.array([0.0, 0.2, 0.2, 0.2])
        distances[nearest] = 0.1
        assert choice._pick(areas, distances) == nearest


def test_few_images_say_nothing():
    for count in (1, 2, FEWEST - 1):
        found = choose(areas_of(np.tile([[0.5], [0.1]], count)), np.array([0.0, 1.0]))
        assert found.index == 0
        assert f"{count} images are too few" in found.reason
    assert choose(areas_of(np.tile([[0.5], [0.1]], FEWEST)), np.array([0.0, 1.0])).index == 1


def test_a_gain_that_is_not_there_on_other_images_is_none(monkeypatch):
    areas, distances = made(np.random.default_rng(0), [0, 1.0, -1.0], 12), np.array([0.0, 1.0, 1.0])
    assert choose(areas, distances).reason == ""
    pick = lambda areas, distances: 1 if areas.shape[1] == 12 else 2  # noqa: E731
    monkeypatch.setattr(choice, "_pick", pick)
    found = choose(areas, distances)
    assert found.gain < 0
    assert found.index == 0
    assert found.reason.startswith("on images without part in the choice")


def test_a_neighbour_needs_less_evidence_than_a_distant_candidate():
    areas = made(np.random.default_rng(4), [0, 0.1], 12, 0.2)
    gain = scores(areas)[1] - scores(areas)[0]
    assert 1 < gain.mean() / standard_error(gain) < 2.5
    assert choice._pick(areas, np.array([0.0, 0.08])) == 1
    assert choice._pick(areas, np.array([0.0, 0.6])) == 0


def test_one_difficult_image_does_not_decide():
    """It halves the error of an image with most errors, and doubles the error of every other image."""
    start, other = np.full(12, 0.02), np.full(12, 0.04)
    start[0], other[0] = 0.9, 0.45
    areas = areas_of([start, other])
    assert mean_iou(areas.sum(1))[1] > mean_iou(areas.sum(1))[0]
    assert choose(areas, np.array([0.0, 1.0])).index == 0


def test_standard_errors():
    values = np.random.default_rng(0).normal(size=(3, 10))
    assert standard_error(values) == pytest.approx(values.std(1, ddof=1) / 10**0.5)
    assert np.isnan(standard_error(values[:, :1])).all()
