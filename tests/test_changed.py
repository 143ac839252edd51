"""The changes that a refinement makes, as data, in the log and on the command line."""

import logging

import numpy as np
import pytest
import torch

import fwcrf
from fwcrf.kernels import Bilateral

BEFORE = np.array([[0, 0, 1], [2, 2, 0]])


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, lambda a: a.astype(np.uint8)])
def test_shares_lost_labels_and_a_label_that_takes_over(kind):
    found = fwcrf.changes(kind(BEFORE), kind(np.where(BEFORE == 1, 0, BEFORE)))
    assert found == fwcrf.Changes(share=1 / 6, lost=(1,), took_over=None)
    assert str(found) == "17 % of the pixels changed; label 1 disappeared"
    found = fwcrf.changes(kind(BEFORE), kind(np.zeros_like(BEFORE)))
    assert found == fwcrf.Changes(0.5, (1, 2), 0)
    assert str(found) == "50 % of the pixels changed; labels 1 and 2 disappeared; label 0 took over"
    assert str(fwcrf.changes(kind(BEFORE), kind(BEFORE))) == "0 % of the pixels changed"


def test_a_single_label_takes_nothing_over_and_a_negative_number_is_no_label():
    assert fwcrf.changes(np.zeros(4, int), np.zeros(4, int)).took_over is None
    assert fwcrf.changes(np.array([-1, 0]), np.array([0, 0])) == fwcrf.Changes(0.5, (), None)


@pytest.mark.parametrize(
    ("before", "after", "kind", "said"),
    [
        (BEFORE, BEFORE[:1], ValueError, "shapes (2, 3) and (1, 3); expected the same"),
        (BEFORE / 2, BEFORE, TypeError, "before has dtype float64; expected labels"),
        (BEFORE, [0, 1], TypeError, "after is a list"),
    ],
)
def test_other_arrays_are_refused(before, after, kind, said):
    with pytest.raises(kind) as raised:
        fwcrf.changes(before, after)
    assert said in str(raised.value)


def scene(strength):
    """An image of one colour, and scores with an object of which the network is not sure."""
    p = np.full((20, 30, 2), (0.7, 0.3))
    p[8:12, 8:13] = 0.4, 0.6
    return np.full((20, 30, 3), 90, np.uint8), p, {"kernels": [Bilateral(9, 13, weight=strength)]}


def test_refine_logs_its_changes(caplog):
    image, p, settings = scene(5.0)
    with caplog.at_level(logging.INFO, "fwcrf"):
        labels = fwcrf.refine(image, p, **settings)
    found = fwcrf.changes(p.argmax(-1), labels)
    assert found.took_over == 0
    (said,) = [record for record in caplog.records if record.message == str(found)]
    assert said.levelno == logging.WARNING
    caplog.clear()
    image, p, settings = scene(5.0)
    image[8:12, 8:13] = 200
    p[0, 0] = 0.45, 0.55
    with caplog.at_level(logging.INFO, "fwcrf"):
        labels = fwcrf.refine(image, p, **settings)
    (said,) = [record for record in caplog.records if "pixels changed" in record.message]
    assert said.levelno == logging.INFO and said.message == str(fwcrf.changes(p.argmax(-1), labels))


@pytest.mark.parametrize("settings", [{}, {"tile": 8, "overlap": 3}, {"return_probabilities": True}])
def test_tiles_and_batches_are_counted_together(caplog, settings):
    rng = np.random.default_rng(0)
    p = torch.from_numpy(rng.dirichlet(np.ones(4), (2, 14, 18)).transpose(0, 3, 1, 2).copy())
    image = torch.from_numpy(rng.integers(0, 256, (2, 3, 14, 18)))
    with caplog.at_level(logging.INFO, "fwcrf"):
        found = fwcrf.refine(image, p, kernels=[Bilateral(9, 60)], **settings)
    labels = found[0] if isinstance(found, tuple) else found
    expected = fwcrf.changes(p.argmax(1), labels)
    assert expected.share > 0.02
    assert str(expected) in [record.message for record in caplog.records]
