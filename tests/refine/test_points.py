"""Points: a grid of them is an image, and everything else goes by features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from refine_scenes import KERNELS, photograph, probabilities

import fwcrf
from fwcrf.energy import unary_from_logits
from fwcrf.kernels import Bilateral, Gaussian, Spatial

SIZE = (14, 17)
IMAGE, P = photograph(*SIZE), probabilities(*SIZE)
PLACE = np.argwhere(np.ones(SIZE, bool))
TONE, Q = IMAGE.reshape(-1, 3), P.reshape(-1, 3)
EXACT = [Spatial(1.3, weight=1.5, method="exact"), Bilateral(5.1, 31.0, weight=3.0, method="exact")]

LATTICE = replace(KERNELS[1], method="lattice")


@pytest.mark.parametrize("kernels", [EXACT, [EXACT[0], LATTICE]], ids=["exact", "lattice"])
def test_a_grid_of_points_is_an_image(kernels):
    labels, x = fwcrf.refine_points(PLACE, TONE, Q, kernels=kernels, return_probabilities=True)
    expected, likely = fwcrf.refine(IMAGE, P, kernels=kernels, return_probabilities=True)
    np.testing.assert_array_equal(labels.reshape(SIZE), expected)
    np.testing.assert_allclose(x.reshape(likely.shape), likely, atol=1e-5)


def test_defaults_are_in_units_of_the_distance_between_neighbours():
    expected = fwcrf.refine(IMAGE, P, preset="paper")
    for scale in (1.0, 0.001, 250.0):
        found = fwcrf.refine_points(PLACE * scale, TONE, Q).reshape(SIZE)
        # A lattice in place of the separable filter.
        assert (found == expected).mean() > 0.99


def test_units_are_those_of_the_data():
    metres = fwcrf.refine_points(PLACE * 0.1, TONE, Q, kernels=[Bilateral(0.51, 31.0)])
    np.testing.assert_array_equal(metres, fwcrf.refine_points(PLACE, TONE, Q, kernels=[Bilateral(5.1, 31.0)]))
    per_axis = [Bilateral((5.1, 2.3), (31.0, 20.0, 9.0))]
    scaled = fwcrf.refine_points(PLACE / [5.1, 2.3], TONE / [31.0, 20.0, 9.0], Q, kernels=[Bilateral(1, 1)])
    np.testing.assert_array_equal(scaled, fwcrf.refine_points(PLACE, TONE, Q, kernels=per_axis))


def test_a_gaussian_is_over_the_features_or_else_the_positions():
    cloud = np.random.default_rng(0).normal(size=(50, 3))
    q = probabilities(50)
    operator = Gaussian(weight=2.0, method="exact").operator(torch.from_numpy(cloud).float())
    E = fwcrf.Energy(
        fwcrf.pairwise.dense([operator], 3, weights=[2.0]), unary_from_logits(torch.from_numpy(q).log())
    )
    expected = fwcrf.minimize(E, "l2fw", num_steps=10).labels.numpy()
    kernels = [Gaussian(weight=2.0, method="exact")]
    np.testing.assert_array_equal(fwcrf.refine_points(cloud, None, q, kernels=kernels), expected)
    np.testing.assert_array_equal(fwcrf.refine_points(cloud * 9, cloud, q, kernels=kernels), expected)


def test_torch_and_numpy_have_one_layout_and_batches_come_first():
    q = np.stack([Q, Q[::-1]])
    expected = np.stack([fwcrf.refine_points(PLACE, TONE, one, kernels=EXACT) for one in q])
    np.testing.assert_array_equal(fwcrf.refine_points(PLACE, TONE, q, kernels=EXACT), expected)
    labels, likely = fwcrf.refine_points(
        torch.from_numpy(PLACE), torch.from_numpy(TONE), torch.from_numpy(q).half(), kernels=EXACT,
        return_probabilities=True,
    )  # fmt: skip
    assert labels.dtype == torch.int64 and likely.dtype == torch.float16 and likely.shape == q.shape
    assert (labels.numpy() == expected).mean() > 0.99
    each = fwcrf.refine_points(np.stack([PLACE] * 2), np.stack([TONE] * 2), q, kernels=EXACT)
    np.testing.assert_array_equal(each, expected)


def test_forms_of_scores_and_constraints():
    logits = fwcrf.refine_points(PLACE, TONE, np.log(Q), from_logits=True, kernels=EXACT)
    np.testing.assert_array_equal(logits, fwcrf.refine_points(PLACE, TONE, Q, kernels=EXACT))
    labels = Q.argmax(-1)
    np.testing.assert_array_equal(
        fwcrf.refine_points(PLACE, TONE, labels, from_labels=0.6, kernels=EXACT).reshape(SIZE),
        fwcrf.refine(IMAGE, labels.reshape(SIZE), from_labels=0.6, kernels=EXACT),
    )
    one = fwcrf.refine_points(PLACE, TONE, Q[:, 0], kernels=EXACT)
    assert set(np.unique(one)) <= {0, 1}
    random = np.random.default_rng(1)
    keep, ignore = random.random((2, len(Q))) < 0.2
    scribbles = np.where(random.random(len(Q)) < 0.05, 2, -1)
    constraints = dict(keep=keep, ignore=ignore, scribbles=scribbles)
    found = fwcrf.refine_points(PLACE, TONE, Q, kernels=EXACT, **constraints)
    on_grid = {name: a.reshape(SIZE) for name, a in constraints.items()}
    np.testing.assert_array_equal(found.reshape(SIZE), fwcrf.refine(IMAGE, P, kernels=EXACT, **on_grid))


def test_ignored_points_may_be_anywhere():
    place, ignore = PLACE.astype(float), np.arange(len(Q)) % 3 == 0
    expected = fwcrf.refine_points(place, TONE, Q, kernels=EXACT, ignore=ignore)
    place[ignore] = np.nan
    np.testing.assert_array_equal(fwcrf.refine_points(place, TONE, Q, kernels=EXACT, ignore=ignore), expected)


def test_points_in_one_place_have_a_scale_too():
    q = probabilities(5, seed=2)
    labels = fwcrf.refine_points(np.zeros((5, 3)), None, q)
    assert labels.shape == (5,)
