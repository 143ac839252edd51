"""Verdicts by a bootstrap over images."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import scipy.stats
import torch

from fwcrf.apps.experiments import verdict
from fwcrf.apps.experiments.verdict import Interval, Verdict, above, exact, student, within

HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.UNKNOWN


def mean(*differences):
    """The mean over images of each row of differences, as a function of shares."""
    rows = torch.tensor(differences, dtype=torch.float64)
    return (lambda shares: rows @ shares.T), rows.shape[1]


def noise(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("differences", "expected"), [
    ([5.0, 6.0, 5.5, 4.0], HOLDS),
    ([-5.0, -6.0, -5.5, -4.0], FAILS),
    ([5.0, -6.0, 5.5, -4.0], UNKNOWN),
    ([0.0, 0.0, 0.0, 0.0], UNKNOWN),
    ([2.0, 2.0, 2.0], HOLDS),
    ([7.0], UNKNOWN),
    ([-7.0], UNKNOWN),
    ([5.0, 5.5], HOLDS),
    ([5.0, 6.0], UNKNOWN),
])  # fmt: skip
def test_verdict_on_one_difference(differences, expected):
    assert above(*mean(differences)).verdict is expected


def test_noise_hides_a_difference_on_few_images_and_not_on_many():
    many = noise(400) + 0.5
    assert above(*mean(many[:8].tolist())).verdict is UNKNOWN
    assert above(*mean(many.tolist())).verdict is HOLDS
    assert above(*mean((-many).tolist())).verdict is FAILS


def test_a_pair_is_compared_image_by_image():
    """Differences between images are a hundred times those between solvers, and do not count."""
    images = 100 * noise(8)
    one, other = images + 0.1 * noise(8, seed=1), images + 1
    assert above(*mean((other - one).tolist())).verdict is HOLDS


def test_the_interval_of_a_mean_is_that_of_students_test():
    values = noise(12) + 0.3
    found = above(*mean(values.tolist()))
    low, high = scipy.stats.ttest_1samp(values.numpy(), 0).confidence_interval(0.95)
    assert found.value == pytest.approx(float(values.mean()))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))
    assert found.images == 12 and found == above(*mean(values.tolist()))


@pytest.mark.parametrize("num_images", [2, 5, 20])
def test_coverage(num_images):
    """The interval has the true difference 19 times of 20: for the mean, and for the least of three means."""
    once, least, wrong = 0, 0, 0
    for seed in range(200):
        values = noise(3, num_images, seed=seed)
        one = above(*mean(values[0].tolist()))
        once += one.low <= 0 <= one.high
        three = above(*mean(*values.tolist()))
        least += three.low <= 0 <= three.high
        wrong += three.verdict is FAILS
    assert 0.91 <= once / 200 <= 0.985
    assert least / 200 >= 0.91
    assert wrong / 200 <= 0.05


def test_training_runs_widen_the_interval():
    """Equal images give the interval of Student's test over runs, equal runs the one over images."""
    images = noise(40) + 0.3
    own = images.mean()
    one = above(*mean(images.tolist()))
    assert above(*mean(images.tolist()), runs=torch.stack([own, own, own])[None]) == replace(one, runs=3)
    values = torch.tensor([0.2, 0.5, 0.35]).double()
    same = above(*mean([float(values.mean())] * 40), runs=values[None])
    low, high = scipy.stats.ttest_1samp(values.numpy(), 0).confidence_interval(0.95)
    assert (same.low, same.high) == pytest.approx((low, high))
    assert "over 40 images and 3 training runs" in str(same)
    both = above(*mean(images.tolist()), runs=(own + values - values.mean())[None])
    assert both.low < one.low and both.high > one.high


def test_coverage_over_images_and_training_runs():
    """19 intervals of 20 have the true difference, where images alone would give far fewer."""
    hits = alone = 0
    for seed in range(200):
        drawn = noise(24, seed=seed)
        runs = 0.8 * noise(3, seed=1000 + seed)
        values = drawn + runs.mean()
        of_runs = (drawn.mean() + runs)[None]
        both, images = above(*mean(values.tolist()), runs=of_runs), above(*mean(values.tolist()))
        hits += both.low <= 0 <= both.high
        alone += images.low <= 0 <= images.high
    assert 0.91 <= hits / 200 <= 0.995 and alone < hits - 10


def test_all_of_several_differences_are_to_be_above():
    clear, loss, tie = [5.0, 6.0, 5.5, 4.0], [-5.0, -6.0, -5.5, -4.0], [5.0, -6.0, 5.5, -4.0]
    assert above(*mean(clear, clear[::-1])).verdict is HOLDS
    assert above(*mean(clear, tie)).verdict is UNKNOWN
    assert above(*mean(clear, loss)).verdict is FAILS
    assert above(*mean(clear, loss)).value == pytest.approx(-5.125)
    both = above(*mean(clear, [0.0] * 4))
    assert both.verdict is UNKNOWN and (both.value, both.low, both.high) == (0, 0, 0)


def test_more_differences_need_a_larger_one_to_fail():
    loss = [-5.0, -1.0, -4.0, -2.0]
    one, many = above(*mean(loss)), above(*mean(loss, *[[50.0, 60.0, 55.0, 45.0]] * 9))
    assert one.low == pytest.approx(many.low) and many.high > one.high
    factor = student(1 - 0.025 / 10, 3) / student(0.975, 3)
    assert many.high + 3 == pytest.approx(factor * (one.high + 3))


def test_a_bound():
    slightly = [-0.02, -0.01, -0.03, -0.02]
    assert above(*mean(slightly)).verdict is FAILS
    tied = above(*mean(slightly), bound=-0.05)
    assert tied.verdict is HOLDS and ", to be above -0.05," in str(tied)
    assert above(*mean(slightly), bound=-0.02).verdict is UNKNOWN
    assert above(*mean(slightly), bound=-0.001).verdict is FAILS
    assert above(*mean([0.0] * 4), bound=-0.05).verdict is UNKNOWN


@pytest.mark.parametrize(("differences", "expected"), [
    ([[0.1, 0.2, 0.1, 0.15]], HOLDS),
    ([[-0.1, -0.2, -0.1, -0.15]], HOLDS),
    ([[0.9, 0.8, 0.85, 0.9]], FAILS),
    ([[-0.9, -0.8, -0.85, -0.9]], FAILS),
    ([[0.9, 0.1, -0.85, 0.3]], UNKNOWN),
    ([[0.0, 0.0, 0.0, 0.0]], UNKNOWN),
    ([[0.1, 0.2, 0.1, 0.15], [-0.9, -0.8, -0.85, -0.9]], FAILS),
    ([[0.1]], UNKNOWN),
])  # fmt: skip
def test_differences_within_a_bound(differences, expected):
    found = within(*mean(*differences), 0.5)
    assert found.verdict is expected
    assert found.value == pytest.approx(max(abs(sum(row) / len(row)) for row in differences))
    assert 0 <= found.low <= found.value <= found.high


def test_names_of_differences():
    assert above(*mean([1.0, 2.0])).name == "difference"
    assert above(*mean([1.0, 2.0], [3.0, 4.0])).name == "least difference"
    assert above(*mean([1.0, 2.0]), name="gain").name == "gain"
    assert within(*mean([1.0, 2.0]), 0.5).name == "largest difference"


def test_draws_without_a_value_are_left_out():
    """A class may be absent from a draw."""

    def gain(shares):
        return torch.where(shares[:, 0] > 0, shares @ torch.tensor([1.0, 1.2, 0.9, 1.1]).double(), torch.nan)

    found = above(gain, 4)
    assert found.verdict is HOLDS and 0.5 < found.low < found.value < found.high < 1.6
    assert above(lambda shares: shares[:, 0] * torch.nan, 4).verdict is UNKNOWN


def test_draws_have_every_image_equally_often():
    assert verdict.equally(4).tolist() == [[0.25] * 4]
    shares = verdict._shares(5)
    assert shares.shape == (verdict.DRAWS, 5) and verdict.DRAWS >= 1000
    assert torch.allclose(shares.sum(1), torch.ones(len(shares)).double())
    assert torch.allclose(shares.mean(0), torch.full((5,), 0.2).double(), atol=0.02)
    assert shares.unique().numel() > 3


def test_one_exception_refutes_a_claim_about_every_image():
    assert exact(True, 2) is HOLDS
    assert exact(True, 1) is UNKNOWN
    assert exact(False, 1) is exact(False, 9) is FAILS


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 30, 111])
@pytest.mark.parametrize("p", [0.6, 0.975, 0.9995])
def test_quantiles_of_students_distribution(p, df):
    assert student(p, df) == pytest.approx(scipy.stats.t.ppf(p, df), rel=1e-8)  # scipy 1.11 errs by 2e-9


def test_an_interval_that_touches_the_bound_cannot_tell():
    assert Interval(1.0, 0.0, 2.0, 9).verdict is UNKNOWN
    assert Interval(-1.0, -2.0, 0.0, 9).verdict is UNKNOWN
    assert Interval(1.0, 0.01, 2.0, 9).verdict is HOLDS
    assert Interval(0.3, 0.1, 0.4, 9, 0.5, below=True).verdict is HOLDS
    assert Interval(0.3, 0.1, 0.5, 9, 0.5, below=True).verdict is UNKNOWN
    assert Interval(0.7, 0.6, 0.8, 9, 0.5, below=True).verdict is FAILS
    assert Interval(0.7, -math.inf, math.inf, 1).verdict is UNKNOWN
    assert Interval(math.nan, math.nan, math.nan, 4).verdict is UNKNOWN
