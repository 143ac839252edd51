"""Borders, with scipy as judge of distances."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import binary_erosion, distance_transform_edt

from fwcrf.apps.evaluation import BoundaryF, trimap
from fwcrf.apps.evaluation.boundary import borders, completed, within

seeds = st.integers(0, 10_000)


def patches(seed, shape=(14, 17), L=3):
    random = np.random.default_rng(seed)
    coarse = random.integers(0, L, (4, 5))
    return coarse.repeat(4, 0).repeat(4, 1)[: shape[0], : shape[1]]


@given(seeds, st.sampled_from([0.0, 1.0, 1.5, 2.3, 5.0, 40.0]))
def test_distances_are_euclidean(seed, radius):
    random = np.random.default_rng(seed)
    mask = random.random((9, 13)) < 0.03
    mask[tuple(random.integers(0, 9, 2))] = True
    expected = distance_transform_edt(~mask) <= radius
    assert np.array_equal(within(torch.from_numpy(mask), radius).numpy(), expected)


def inner_border(mask):
    return mask & ~binary_erosion(mask, border_value=1)


@given(seeds)
def test_borders_are_what_erosion_takes_away(seed):
    labels = patches(seed)
    expected = np.any([inner_border(labels == label) for label in range(3)], axis=0)
    assert np.array_equal(borders(torch.from_numpy(labels)).numpy(), expected)


@given(seeds, st.sampled_from([1.0, 2.5]))
def test_trimap(seed, radius):
    truth = patches(seed)
    if (truth == truth[0, 0]).all():
        return
    border = np.any([inner_border(truth == label) for label in range(3)], axis=0)
    expected = distance_transform_edt(~border) <= radius
    assert np.array_equal(trimap(torch.from_numpy(truth), radius).numpy(), expected)


@given(seeds, seeds, st.sampled_from([1.0, 2.0, None]))
def test_f_score_by_distance_transforms(seed, other, radius):
    """Written out from the definition, with everything counted."""
    truth, predicted = patches(seed), patches(other)
    tolerance = 0.0075 * math.hypot(*truth.shape) if radius is None else radius
    score = BoundaryF(3, radius=radius)
    score.update(torch.from_numpy(predicted), torch.from_numpy(truth))
    for label in range(3):
        ours, theirs = inner_border(predicted == label), inner_border(truth == label)
        if not theirs.any():
            assert score.counts[label] == 0
            continue
        precision = (distance_transform_edt(~theirs)[ours] <= tolerance).mean() if ours.any() else 0.0
        recall = (distance_transform_edt(~ours)[theirs] <= tolerance).mean() if ours.any() else 0.0
        expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert score.per_class()[label].item() == pytest.approx(expected)


def test_the_same_labels_score_one():
    truth = torch.from_numpy(patches(3))
    score = BoundaryF(3, radius=0)
    score.update(truth, truth)
    assert score.mean() == 1.0


def test_pixels_that_do_not_count_make_no_border():
    """An object that nobody labelled, in the middle of one class and at the edge of the image."""
    truth = torch.zeros(40, 50, dtype=torch.int64)
    truth[10:30, 15:40] = 255
    truth[:, :4] = 255
    assert not trimap(truth, 3).any()
    score = BoundaryF(2, radius=2)
    score.update(torch.zeros_like(truth), truth)
    assert score.counts.sum() == 0


def test_the_border_is_in_the_middle_of_a_narrow_band():
    truth = torch.zeros(30, 40, dtype=torch.int64)
    truth[8:22, 10:30] = 1
    with_band = truth.clone()
    with_band[within(borders(truth), 1.5)] = 255
    assert torch.equal(completed(with_band)[12:18], truth[12:18])
    for radius in (1.0, 2.5, 6.0):
        assert (trimap(with_band, radius) == trimap(truth, radius)).float().mean() > 0.98
    score = BoundaryF(2, radius=1)
    score.update(truth, with_band)
    assert score.per_class().tolist() == [1.0, 1.0]


@given(seeds, st.sampled_from([1, 3, 5]))
def test_completed_takes_the_nearest_label_within_reach(seed, reach):
    truth = patches(seed)
    truth[np.random.default_rng(seed).random(truth.shape) < 0.8] = 255
    found = completed(torch.from_numpy(truth), reach=reach).numpy()
    distance = distance_transform_edt(truth == 255)
    if not (truth != 255).any():
        distance = np.full(truth.shape, np.inf)
    assert np.array_equal(found == 255, distance > reach)
    for y, x in zip(*np.nonzero((truth == 255) & (found != 255)), strict=True):
        rows, columns = np.nonzero(truth == found[y, x])
        assert np.hypot(rows - y, columns - x).min() == pytest.approx(distance[y, x])


def test_borders_of_labels_on_ignored_pixels_are_neither_found_nor_wrong():
    truth = torch.tensor(
        [[0, 0, 0, 255, 255, 255, 255, 1, 1, 1]]
    )  # its border is between the fifth and the sixth
    inside, beside = (
        torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1, 1, 1]]),
        torch.tensor([[0, 1, 1, 1, 1, 1, 1, 1, 1, 1]]),
    )
    for predicted, expected in ((inside, 1.0), (beside, 0.0)):
        score = BoundaryF(2, radius=1)
        score.update(predicted, truth)
        assert score.per_class()[1].item() == expected
    score = BoundaryF(2, radius=0.5)  # too far away from the border on the ignored pixels
    score.update(inside, truth)
    assert score.per_class().tolist() == [0.0, 0.0]


def test_images_with_and_without_a_class():
    score = BoundaryF(3, radius=1)
    truth = torch.tensor([[0, 0, 1, 1]])
    score.update(truth, truth)
    score.update(torch.tensor([[2, 2, 2, 2]]), truth)
    assert score.per_class().tolist()[:2] == [0.5, 0.5] and math.isnan(score.per_class()[2])
    assert score.mean() == 0.5


def test_labels_that_are_no_class_are_never_right_and_refused_in_the_truth():
    truth = torch.tensor([[0, 0, 0, 1, 1, 1]])
    score = BoundaryF(2, radius=0)
    score.update(torch.tensor([[0, 0, 0, 7, 7, -1]]), truth)
    assert score.per_class().tolist() == [1.0, 0.0]
    with pytest.raises(ValueError, match=r"a true label is 0 or 2; expected 0 to 1, or 255 to ignore"):
        score.update(truth, 2 * truth)
