from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fwcrf.apps.demo.colours import colour_scores
from fwcrf.apps.demo.scribbles import drawn


@settings(max_examples=20)
@given(
    st.integers(2, 5), st.floats(0.1, 0.95), st.integers(0, 1000),
)  # fmt: skip
def test_scores_are_logarithms_of_probabilities_no_surer_than_they_are_trusted(num_labels, trust, seed):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)
    scribbles = rng.integers(-1, num_labels, (6, 7))
    scribbles[0, :2] = 0, 1
    q = np.exp(colour_scores(image, scribbles, num_labels, trust=trust).astype(float))
    assert np.allclose(q.sum(-1), 1, atol=1e-5)
    assert q.min() >= (1 - trust) / num_labels * (1 - 1e-5)
    assert q.max() <= trust + (1 - trust) / num_labels + 1e-5


def test_labels_of_several_colours_are_found():
    colours = np.array([[250, 0, 0], [0, 0, 250], [0, 250, 0], [120, 120, 120]], np.uint8)
    kinds = np.random.default_rng(0).integers(0, 4, (20, 20))
    truth = np.array([0, 0, 1, 1])[kinds]
    scribbles = np.full((20, 20), -1)
    scribbles[:4] = truth[:4]
    assert np.array_equal(colour_scores(colours[kinds], scribbles, 3).argmax(-1), truth)


@pytest.mark.parametrize("trust", [0, 1, np.nan])
def test_trust_is_a_probability(trust):
    with pytest.raises(ValueError, match="between 0 and 1"):
        colour_scores(np.zeros((2, 2, 3), np.uint8), np.array([[0, 1], [-1, -1]]), 2, trust=trust)


def test_two_labels_are_needed():
    with pytest.raises(ValueError, match="1 of 3 labels have scribbles"):
        colour_scores(np.zeros((2, 2, 3), np.uint8), np.array([[1, 1], [-1, -1]]), 3)


coordinate = st.floats(-15, 35).map(lambda v: round(v, 1))


@given(st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=4), st.floats(0.5, 9))
def test_strokes_cover_the_pixels_within_the_radius(points, radius):
    """Against the distance to many points along the line."""
    found = drawn([(3, radius, points)], (17, 23)) == 3
    line = [np.array(points[0])[None]]
    for a, b in pairwise(points):
        line.append(np.linspace(a, b, 400))
    y, x = np.mgrid[:17, :23]
    distance = np.hypot(
        *(np.stack([x, y], -1)[..., None, :] - np.concatenate(line)).transpose(3, 0, 1, 2)
    ).min(-1)
    assert found[distance < radius - 0.1].all()
    assert not found[distance > radius + 0.1].any()


def test_the_last_stroke_lies_on_top():
    found = drawn([(0, 2, [(5, 5)]), (1, 1, [(5, 5)])], (11, 11))
    assert found[5, 5] == 1 and found[5, 7] == 0 and found[0, 0] == -1
