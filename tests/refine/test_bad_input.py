"""Bad input gets a sentence: the value, what was expected, the remedy."""

import re
import warnings

import numpy as np
import pytest
import torch
from refine_scenes import KERNELS, photograph, probabilities

import fwcrf
from fwcrf.kernels import Bilateral, Gaussian, Spatial

IMAGE, P = photograph(9, 13), probabilities(9, 13, labels=4)
LABELS = P.argmax(-1)


def refine(image, p, **settings):
    settings.setdefault("kernels", KERNELS)
    return fwcrf.refine(image, p, **settings)


def first(a):
    return np.moveaxis(a, -1, 0)


def tensor(a):
    return torch.from_numpy(np.ascontiguousarray(first(a)))


def changed(p, value):
    p = p.copy()
    p[2, 3] = value
    return p


INF = float("inf")
NAN = float("nan")
MASK = np.zeros((9, 13), bool)
NONE = np.full((9, 13), -1)

REFUSED = {
    # sizes and layouts
    "sizes": ((IMAGE, P[::2, ::2]), {}, "9 x 13 and 5 x 7; expected the same grid. Pass resize='scores'"),
    "channels first": ((first(IMAGE), first(P)), {}, "channels seem to come first: pass channel_axis=0"),
    "image first": (
        (first(IMAGE), P),
        {},
        "channels of image seem to be at axis 0: pass np.moveaxis(image, 0, 2)",
    ),
    "labels first": ((IMAGE, first(P)), {}, "labels of probabilities seem to be at axis 0: pass np.moveaxis"),
    "both in a batch": (
        (first(IMAGE)[None], first(P)[None]),
        {},
        "The channels seem to come at axis 1: pass channel_axis=1",
    ),
    "torch labels last": (
        (tensor(IMAGE), torch.from_numpy(P)),
        {},
        "labels of probabilities seem to be at axis 2: pass probabilities.movedim(2, 0)",
    ),
    "torch both last": ((torch.from_numpy(IMAGE), torch.from_numpy(P)), {}, "before the grid: permute both"),
    "width first": ((IMAGE.swapaxes(0, 1), P), {}, "rows come first: pass image.swapaxes(0, 1)"),
    "grey batch": ((IMAGE[None, ..., 0], P[None]), {}, "no channel axis: pass channel_axis=None"),
    "many channels": (
        (np.zeros((3, 9, 40)), np.full((3, 9, 3), 1 / 3)),
        {},
        "40 channels; expected at most 14 beside 2 positions",
    ),
    "no such axis": ((IMAGE, P), {"channel_axis": 5}, "channel_axis=5 with probabilities of shape"),
    "too few axes": ((IMAGE[0], P[0]), {"spatial_dims": 3}, "(13, 4); expected (*grid, channels) or"),
    "too many axes": ((IMAGE, P[None, None]), {"spatial_dims": 2}, "(1, 1, 9, 13, 4); expected"),
    "no pixels": ((IMAGE[:0], P[:0]), {}, "(0, 13, 4); expected at least one pixel"),
    "batches": (
        (np.stack([IMAGE] * 2), np.stack([P] * 3)),
        {},
        "a batch of 2, and probabilities (3, 9, 13, 4)",
    ),
    "images for one": (
        (np.stack([IMAGE] * 2), P),
        {},
        "a batch of 2, and probabilities (9, 13, 4), which has none",
    ),
    "spatial_dims": ((IMAGE, P), {"spatial_dims": 0}, "spatial_dims=0; expected a whole number"),
    "spacing": ((IMAGE, P), {"spacing": (1.0, 2.0, 3.0), "spatial_dims": 2}, "spacing=(1.0, 2.0, 3.0) has 3"),
    "spacing of 0": ((IMAGE, P), {"spacing": 0.0}, "spacing=0.0; expected positive"),
    "resize": (
        (IMAGE, P),
        {"resize": "both"},
        "resize='both' is not known; expected 'scores', 'image' or None",
    ),
    "resize infinite": (
        (IMAGE, changed(np.log(P), INF)[::2]),
        {"resize": "scores", "from_logits": True},
        "infinite values and another size than the image",
    ),
    # values
    "nan": ((IMAGE, changed(P, NAN)), {}, "probabilities has 4 NaN entries, of 468; expected numbers"),
    "nan logits": ((IMAGE, changed(P, NAN)), {"from_logits": True}, "logits has 4 NaN entries"),
    "nan image": ((changed(IMAGE.astype(float), NAN), P), {}, "image has 3 values that are NaN"),
    "infinite": ((IMAGE, changed(P, INF)), {}, "infinite values; expected probabilities"),
    "negative": ((IMAGE, np.log(P)), {}, "If these are logits, pass from_logits=True"),
    "nothing": (
        (IMAGE, changed(P, 0.0)),
        {},
        "0 for all labels in 1 pixels; expected sums of 1. Pixels without",
    ),
    "one logit": (
        (IMAGE, P[..., 0] * 9 - 4),
        {},
        "the probability of label 1, from 0 to 1. If these are logits",
    ),
    "num_labels": ((IMAGE, P), {"num_labels": 5}, "(9, 13, 4), 4 labels, and num_labels=5; expected as many"),
    "one label": (
        (IMAGE, LABELS),
        {"num_labels": 1, "from_labels": True},
        "num_labels=1; expected a whole number",
    ),
    # label maps, masks
    "void": (
        (IMAGE, np.where(LABELS == 1, 255, LABELS)),
        {"from_labels": True},
        "labels up to 255; expected fewer. If 255 marks pixels without a label, set them to -1: np.where",
    ),
    "too many labels": (
        (IMAGE, torch.from_numpy(LABELS)),
        {"from_labels": True, "num_labels": 3},
        "labels up to 3; expected at most 2, of num_labels=3",
    ),
    "confidence": ((IMAGE, LABELS), {"from_labels": 0.4}, "from_labels=0.4; expected True, or a confidence"),
    "certain": ((IMAGE, LABELS), {"from_labels": 1.0}, "from_labels=1.0; expected"),
    "both forms": ((IMAGE, LABELS), {"from_labels": 0.7, "from_logits": True}, "both given"),
    "label map size": ((IMAGE, LABELS[1:]), {"from_labels": 0.7}, "9 x 13 and 8 x 13; expected the same"),
    "mask size": ((IMAGE, P), {"keep": MASK[1:]}, "keep has shape (8, 13); expected one entry per pixel"),
    "mask batch": ((IMAGE, P), {"ignore": MASK[None]}, "ignore has shape (1, 9, 13), a batch of 1"),
    "mask axes": (
        (IMAGE, P),
        {"ignore": MASK[0]},
        "ignore has shape (13,); expected (*grid) or (batch, *grid)",
    ),
    "scribbled 255": (
        (IMAGE, P),
        {"scribbles": np.full((9, 13), 255, np.uint8)},
        "scribbles has labels up to 255; expected 0 to 3, and -1",
    ),
    # settings
    "solver": ((IMAGE, P), {"solver": "newton"}, "solver 'newton' is not known; expected one of mf"),
    "rounding": ((IMAGE, P), {"rounding": "up"}, "rounding='up' is not known"),
    "num_steps": ((IMAGE, P), {"num_steps": -1}, "num_steps=-1; expected 0"),
    "num_steps half": ((IMAGE, P), {"num_steps": 2.5}, "num_steps=2.5; expected 0"),
    "compatibility": ((IMAGE, P), {"compatibility": [1.0, 2.0]}, "compatibility has shape (2,); expected"),
    "colour": ((IMAGE, P), {"kernels": [Bilateral(5, (3.0, 3.0))]}, "color=(3.0, 3.0) has 2 entries"),
    "no kernels": ((IMAGE, P), {"kernels": []}, "kernels=[]; expected a kernel"),
    "out": ((IMAGE, P), {"out": np.zeros((9, 12), int)}, "out has shape (9, 12); expected (9, 13)"),
}

MISTYPED = {
    "integers": (
        (IMAGE, LABELS[..., None].repeat(4, -1)),
        {},
        "dtype int64; expected floating point. For a label map",
    ),
    "bytes": ((IMAGE, (P * 255).astype(np.uint8)), {}, "For scores stored as bytes divide by 255"),
    "complex": (
        (IMAGE, P.astype(complex)),
        {},
        "probabilities has dtype complex128; expected floating point.",
    ),
    "list": ((IMAGE, P.tolist()), {}, "probabilities is a list; expected a torch tensor, a numpy array"),
    "path": (("image.png", P), {}, "image is a str; expected a torch tensor, a numpy array"),
    "bool image": ((IMAGE > 9, P), {}, "image has dtype bool; expected whole or floating-point numbers"),
    "objects": ((IMAGE.astype(object), P), {}, "image has dtype object; expected"),
    "masked": ((np.ma.masked_less(IMAGE, 9), P), {}, "pass image.filled(0), and the mask as ignore="),
    "float labels": ((IMAGE, LABELS.astype(float)), {"from_labels": 0.7}, "convert with .astype(int)"),
    "torch float labels": ((IMAGE, torch.zeros(9, 13)), {"from_labels": 0.7}, "convert with .long()"),
    "float mask": ((IMAGE, P), {"keep": MASK.astype(float)}, "keep has dtype float64; expected booleans"),
    "float scribbles": (
        (IMAGE, P),
        {"scribbles": NONE * 1.0},
        "scribbles has dtype float64; expected integers",
    ),
    "bool scribbles": ((IMAGE, P), {"scribbles": MASK}, "scribbles has dtype bool; expected integers"),
    "float out": (
        (IMAGE, P),
        {"out": np.zeros((9, 13))},
        "out has dtype float64; expected integers that hold",
    ),
    "out alone": (
        (IMAGE, P),
        {"out": NONE, "return_probabilities": True},
        "out is one array; expected a pair",
    ),
    "integer probabilities": (
        (IMAGE, P),
        {"out": (NONE.copy(), np.zeros((9, 13, 4), int)), "return_probabilities": True},
        "out[1] has dtype int64; expected floating point",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_value_is_refused_with_a_sentence(case):
    arrays, settings, message = REFUSED[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        refine(*arrays, **settings)


@pytest.mark.parametrize("case", MISTYPED)
def test_a_bad_type_is_refused_with_a_sentence(case):
    arrays, settings, message = MISTYPED[case]
    with pytest.raises(TypeError, match=re.escape(message)):
        refine(*arrays, **settings)


def test_small_integers_cannot_hold_many_labels():
    p = np.full((2, 2, 200), 1 / 200, np.float32)
    with pytest.raises(TypeError, match="int8; expected integers that hold labels to 199"):
        refine(np.zeros((2, 2, 3)), p, out=np.zeros((2, 2), np.int8))


# --- warnings -----------------------------------------------------------------------------------


def once(function, message):
    """What a function returns that warns once, from this file's line, with a message."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = function()
    assert len(seen) == 1, [str(w.message) for w in seen]
    assert message in str(seen[0].message)
    assert seen[0].filename == __file__
    return found


def test_sums_other_than_1_are_divided_out_with_a_warning():
    uneven = P * np.linspace(0.5, 3, 13)[None, :, None].astype(np.float32)
    found = once(lambda: refine(IMAGE, uneven), "probabilities sums to 0.5 ... 3 over the labels; expected 1")
    np.testing.assert_array_equal(found, refine(IMAGE, P))
    once(lambda: refine(IMAGE, uneven, tile=5, overlap=3), "sums to 0.5")
    refine(IMAGE, P * np.float32(1.0009))


def test_coarse_dtypes_are_not_warned_of():
    logits = torch.randn(1, 21, 9, 13, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float16, torch.bfloat16):
        refine(IMAGE, torch.softmax(logits, 1).to(dtype))


def test_probabilities_of_0_are_warned_of_and_do_not_forbid():
    zeros = P.copy()
    zeros[..., 3] = 0
    zeros /= zeros.sum(-1, keepdims=True)
    _, likely = once(
        lambda: refine(IMAGE, zeros, solver="mf", return_probabilities=True),
        "entries of exactly 0; they are taken as",
    )
    assert (likely[..., 3] > 0).all()


def test_a_label_map_in_disguise_is_warned_of():
    once(lambda: refine(IMAGE, np.eye(4, dtype=np.float32)[LABELS]), "from_labels=0.7")


def test_units_of_the_image():
    kernels = [Spatial(3), Bilateral(80, 13)]
    once(
        lambda: refine(IMAGE / 255, P, kernels=kernels),
        "values from 0.0667 to 0.875, and the colour bandwidth is 13",
    )
    once(
        lambda: refine(IMAGE // 64 * 64, P, kernels=[Bilateral(80, 0.05)]), "only equal values are neighbours"
    )
    # What is meant so is not warned of.
    refine(IMAGE / 255, P, kernels=[Bilateral(80, 0.05)])
    refine(IMAGE.astype(np.float32), P, kernels=kernels)
    refine(np.full((9, 13, 3), 0.5), P, kernels=kernels)
    refine((IMAGE > 99).astype(np.uint8), P, kernels=[Bilateral(80, 0.1)])
    refine(IMAGE / 255, P, kernels=[Spatial(3)])


# --- points -------------------------------------------------------------------------------------

PLACE, TONE, Q = np.random.default_rng(0).random((20, 3)), IMAGE.reshape(-1, 3)[:20], P.reshape(-1, 4)[:20]

POINTS = {
    "rows": (
        (PLACE[:19], TONE, Q),
        {},
        ValueError,
        "positions has shape (19, 3) and probabilities (20, 4); expected one row",
    ),
    "columns": ((PLACE[:, 0], TONE, Q), {}, ValueError, "positions has shape (20,)"),
    "batch": ((PLACE[None], TONE, Q), {}, ValueError, "positions has shape (1, 20, 3)"),
    "dtype": ((PLACE > 0.5, TONE, Q), {}, TypeError, "positions has dtype bool"),
    "nan": ((PLACE * NAN, TONE, Q), {}, ValueError, "positions has 60 values that are NaN"),
    "no features": (
        (PLACE, None, Q),
        {"kernels": [Bilateral(1, 1)]},
        ValueError,
        "Bilateral kernel without features",
    ),
    "mask": ((PLACE, TONE, Q), {"keep": MASK}, ValueError, "keep has shape (9, 13)"),
    "strings": ((PLACE, TONE, Q), {"kernels": ["bilateral"]}, TypeError, "kernels=['bilateral']; expected"),
    "sums": ((PLACE, TONE, -Q), {}, ValueError, "If these are logits"),
}


@pytest.mark.parametrize("case", POINTS)
def test_bad_points_are_refused_with_a_sentence(case):
    arrays, settings, error, message = POINTS[case]
    settings = {"kernels": [Spatial(0.3), Gaussian(precision=0.001)], **settings}
    with pytest.raises(error, match=re.escape(message)):
        fwcrf.refine_points(*arrays, **settings)


def test_units_of_features():
    once(
        lambda: fwcrf.refine_points(PLACE, TONE / 255, Q, kernels=[Bilateral(0.3, 13)]),
        "features has values from",
    )
