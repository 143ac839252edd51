"""Pixels that are certain, left alone or left out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refine_scenes import KERNELS, photograph, probabilities

import fwcrf
from fwcrf.kernels import Bilateral, Spatial

EXACT = (Spatial(1.3, weight=1.5, method="exact"), Bilateral(5.1, 31.0, weight=3.0, method="exact"))
IMAGE, P = photograph(12, 14), probabilities(12, 14)


def mask(seed, share=0.3):
    return np.random.default_rng(seed).random((12, 14)) < share


def refine(image, p, **settings):
    settings.setdefault("kernels", KERNELS)
    return fwcrf.refine(image, p, **settings)


@pytest.mark.parametrize("solver", ["l2fw", "mf", "fw", "anneal-fw"])
def test_kept_pixels_keep_their_label_and_tell_it(solver):
    free = refine(IMAGE, P, solver=solver)
    assert (free != P.argmax(-1)).any()
    keep = free != P.argmax(-1)
    labels, likely = refine(IMAGE, P, solver=solver, keep=keep, return_probabilities=True)
    assert (labels[keep] == P.argmax(-1)[keep]).all()
    assert (likely[keep].max(-1) == 1).all()
    assert (labels[~keep] != free[~keep]).any()
    assert (refine(IMAGE, P, keep=np.ones_like(keep)) == P.argmax(-1)).all()


def test_scribbles_are_certain_and_win_over_kept_pixels():
    scribbles = np.full((12, 14), -1)
    scribbles[2, 3:9] = 1
    scribbles[9, 3:9] = 2
    labels = refine(IMAGE, P, scribbles=scribbles, keep=mask(0))
    assert (labels[scribbles >= 0] == scribbles[scribbles >= 0]).all()
    others = mask(0) & (scribbles < 0)
    assert (labels[others] == P.argmax(-1)[others]).all()
    logits = np.log(P)
    logits[2, 3:9, 1] = logits[9, 3:9, 2] = np.inf
    np.testing.assert_array_equal(
        refine(IMAGE, P, scribbles=scribbles), refine(IMAGE, logits, from_logits=True)
    )


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_what_is_ignored_has_no_influence(seed):
    ignore = mask(seed)
    labels, likely = refine(IMAGE, P, ignore=ignore, return_probabilities=True)
    np.testing.assert_allclose(likely[ignore], P[ignore], atol=1e-6)
    assert (labels[ignore] == P.argmax(-1)[ignore]).all()

    random = np.random.default_rng(seed)
    other_image, other_p = IMAGE.astype(np.float32), P.copy()
    other_image[ignore] = random.uniform(0, 255, (ignore.sum(), 3))
    other_p[ignore] = other_p[ignore][:, ::-1]
    again, again_likely = refine(other_image, other_p, ignore=ignore, return_probabilities=True)
    np.testing.assert_array_equal(again[~ignore], labels[~ignore])
    np.testing.assert_allclose(again_likely[~ignore], likely[~ignore], atol=1e-6)


@pytest.mark.parametrize("normalization", ["symmetric", "none", "before", "after"])
def test_ignored_pixels_are_as_good_as_absent(normalization):
    """Against the points that are left, on their own, by exact kernels."""
    ignore = mask(3)
    rest = np.argwhere(~ignore)
    image, p = IMAGE.astype(np.float64), P.astype(np.float64)
    kernels = [
        Spatial(1.3, weight=1.5, method="exact", normalization=normalization),
        Bilateral(5.1, 31.0, weight=3.0, method="exact", normalization=normalization),
    ]
    labels, likely = refine(image, p, ignore=ignore, kernels=kernels, return_probabilities=True)
    expected, x = fwcrf.refine_points(
        rest, image[~ignore], p[~ignore], kernels=kernels, return_probabilities=True
    )
    np.testing.assert_array_equal(labels[~ignore], expected)
    np.testing.assert_allclose(likely[~ignore], x, atol=1e-9)


def test_ignored_pixels_may_be_anything():
    ignore = mask(4)
    expected = refine(IMAGE, P, ignore=ignore)
    image = IMAGE.astype(np.float32)
    image[ignore] = np.nan
    for nothing in (np.nan, 0.0, -9999.0, np.inf):
        p = P.copy()
        p[ignore] = nothing
        labels, likely = refine(image, p, ignore=ignore, return_probabilities=True)
        np.testing.assert_array_equal(labels[~ignore], expected[~ignore])
        assert (labels[ignore] == 0).all()
        np.testing.assert_allclose(likely[ignore], 1 / 3, atol=1e-6)


def test_tiles_without_pixels_that_take_part_cost_nothing(monkeypatch):
    seen = []
    on = Bilateral.on
    monkeypatch.setattr(Bilateral, "on", lambda self, d: seen.append(d.origin) or on(self, d))
    ignore = np.zeros((12, 14), bool)
    ignore[:, 7:] = True
    scribbles = np.full((12, 14), -1)
    scribbles[3, 9] = 2
    labels = refine(IMAGE, P, ignore=ignore, scribbles=scribbles, tile=(12, 7), overlap=2)
    assert seen == [(0, 0)]
    assert labels[3, 9] == 2
    rest = ignore & (scribbles < 0)
    assert (labels[rest] == P.argmax(-1)[rest]).all()


def test_ignoring_nothing_changes_nothing_and_ignoring_all_neither():
    none, every = np.zeros((12, 14), bool), np.ones((12, 14), bool)
    np.testing.assert_array_equal(
        refine(IMAGE, P, kernels=EXACT, ignore=none), refine(IMAGE, P, kernels=EXACT)
    )
    np.testing.assert_array_equal(refine(IMAGE, P, ignore=every), P.argmax(-1))


def test_masks_may_have_the_batch_or_not_and_be_of_either_library():
    p = torch.from_numpy(np.stack([P, probabilities(12, 14, seed=5)])).permute(0, 3, 1, 2)
    masks = np.stack([mask(5), mask(6)])
    expected = np.stack([refine(IMAGE, one, ignore=m, keep=m[::-1]) for one, m in zip(
        p.permute(0, 2, 3, 1).numpy(), masks, strict=True)])  # fmt: skip
    found = refine(IMAGE, p, ignore=masks, keep=torch.from_numpy(masks[:, ::-1].copy()).to(torch.uint8))
    np.testing.assert_array_equal(found.numpy(), expected)
    one = refine(IMAGE, p, ignore=masks[0])
    np.testing.assert_array_equal(one[0].numpy(), refine(IMAGE, P, ignore=masks[0]))


def test_masks_go_with_the_tiles():
    image, p = photograph(40, 44), probabilities(40, 44)
    random = np.random.default_rng(0)
    ignore, keep = random.random((2, 40, 44)) < 0.2
    scribbles = np.where(random.random((40, 44)) < 0.02, 1, -1)
    constraints = dict(ignore=ignore, keep=keep, scribbles=scribbles)
    whole, tiled = refine(image, p, **constraints), refine(image, p, tile=17, overlap=12, **constraints)
    assert (whole == tiled).mean() > 0.98
    assert (tiled[scribbles == 1] == 1).all()
    left = (ignore | keep) & (scribbles < 0)
    assert (tiled[left] == p.argmax(-1)[left]).all()
