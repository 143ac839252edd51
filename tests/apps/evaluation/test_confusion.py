"""One confusion matrix over the data set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fwcrf.apps.evaluation import Confusion

L = 4


def labels(seed, count=3, ignored=0.2):
    random = np.random.default_rng(seed)
    predicted, truth = random.integers(0, L, (2, count, 5, 6))
    truth[random.random(truth.shape) < ignored] = 255
    return torch.from_numpy(predicted), torch.from_numpy(truth)


@given(st.integers(0, 10_000))
def test_iou_by_sets(seed):
    predicted, truth = labels(seed)
    confusion = Confusion(L)
    for p, t in zip(predicted, truth, strict=True):
        confusion.update(p, t)
    valid = truth != 255
    for c, found in enumerate(confusion.iou().tolist()):
        ours, theirs = (predicted == c) & valid, truth == c
        assert found == pytest.approx((ours & theirs).sum().item() / (ours | theirs).sum().item())
    assert confusion.accuracy() == pytest.approx((predicted == truth)[valid].double().mean().item())


def test_it_is_not_the_mean_over_images():
    confusion = Confusion(2)
    # An image with one pixel of class 1, missed, and one with nine, all found.
    confusion.update(torch.zeros(10).long(), torch.tensor([1] + [0] * 9))
    confusion.update(torch.ones(9).long(), torch.ones(9).long())
    assert confusion.iou().tolist() == pytest.approx([9 / 10, 9 / 10])


def test_classes_that_occur_nowhere_do_not_count():
    confusion = Confusion(4)
    confusion.update(torch.tensor([0, 0, 2]), torch.tensor([0, 0, 0]))
    assert confusion.mean_iou() == pytest.approx((2 / 3 + 0) / 2)  # class 2 is labelled, in vain
    assert confusion.mean_iou(confusion.present()) == pytest.approx(2 / 3)
    assert confusion.mean_iou([0, 2]) == pytest.approx(1 / 3)


def test_a_batch_is_its_images():
    predicted, truth = labels(0)
    whole, single = Confusion(L), Confusion(L)
    whole.update(predicted, truth)
    for p, t in zip(predicted, truth, strict=True):
        single.update(p, t)
    assert torch.equal(whole.matrix, single.matrix)


def test_some_of_the_pixels():
    predicted, truth = labels(1)
    where = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    some, masked = Confusion(L), Confusion(L)
    some.update(predicted, truth, where)
    masked.update(predicted, torch.where(where, truth, 255))
    assert torch.equal(some.matrix, masked.matrix)


@pytest.mark.parametrize(("predicted", "truth", "match"), [
    ([0, 4], [0, 0], "a predicted label is 0 or 4; expected 0 to 3."),
    ([0, 0], [0, 9], "a true label is 0 or 9; expected 0 to 3, or 255 to ignore."),
    ([0], [0, 0], r"shape \(1,\) and true ones \(2,\)"),
])  # fmt: skip
def test_what_does_not_fit(predicted, truth, match):
    with pytest.raises(ValueError, match=match):
        Confusion(L).update(torch.tensor(predicted), torch.tensor(truth))
