"""Input that is probably a mistake gets a warning with its remedy; other input gets none."""

import warnings
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from refine_scenes import photograph, probabilities
from shared_data import ROOT, needs

import fwcrf
from fwcrf.features import MEASURED
from fwcrf.inputs.arrays import check_label_axis, locate
from fwcrf.kernels import Bilateral, Spatial

IMAGE, P = photograph(20, 26), probabilities(20, 26)
KERNELS = (Spatial(2), Bilateral(8, 13))


def warned(run):
    """The messages of all warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    assert all(w.filename == __file__ for w in found)
    return [str(w.message) for w in found]


def refine(image=IMAGE, p=P, **settings):
    settings.setdefault("kernels", KERNELS)
    return warned(lambda: fwcrf.refine(image, p, **settings))


def layer(image, logits, **settings):
    settings.setdefault("kernels", KERNELS)
    crf = fwcrf.DenseCRF(P.shape[-1], num_steps=1, **settings)
    image, logits = (torch.from_numpy(np.moveaxis(a, -1, 0).copy())[None] for a in (image, logits))
    both = lambda: [crf(image.float(), logits) for _ in range(2)]  # noqa: E731
    return warned(both)


# --- units of the image --------------------------------------------------------------------------

DEEP = {
    "12 bits": IMAGE.astype(np.uint16) * 16,
    "16 bits": IMAGE.astype(np.uint16) * 256,
    "floats": IMAGE * np.float32(16),
    "wide": IMAGE.astype(np.int64) * 100,
}
ALRIGHT = {
    "bytes": IMAGE,
    "int64": IMAGE.astype(np.int64),
    "uint16": IMAGE.astype(np.uint16),
    "floats": IMAGE.astype(np.float32),
    "10 bits": IMAGE.astype(np.uint16) * 4,
    "signed": IMAGE.astype(np.int16) * 16 - 1000,  # CT, for which 13 units are a sensible bandwidth
}


@pytest.mark.parametrize("image", DEEP)
def test_bandwidths_for_bytes_with_more_bits(image):
    (message,) = refine(DEEP[image])
    assert "colour bandwidth is 13, which is meant for values from 0 to 255" in message
    most = DEEP[image].max()
    assert f"pass image * {255 / most:.3g}, or a bandwidth such as color={6 / 255 * most:.3g}, th" in message
    assert message.endswith(f"Bilateral(80, {6 / 255 * most:.3g}, 2.4).")
    scaled = DEEP[image] * (255 / most)
    assert refine(scaled) == []
    assert refine(DEEP[image], kernels=[Bilateral(8, 13 / 255 * float(most))]) == []
    if DEEP[image].dtype != np.uint16:
        assert layer(DEEP[image], np.log(P)) == [message]


@pytest.mark.parametrize("image", ALRIGHT)
def test_sensible_units_get_no_warning(image):
    assert refine(ALRIGHT[image]) == []
    assert layer(ALRIGHT[image].astype(np.float32), np.log(P)) == []


NORMALISED = (IMAGE / np.float32(255) - np.float32(0.45)) / np.float32(0.22)


def test_remedies_name_the_kernel_of_the_default():
    kernel = fwcrf.presets.get("default").kernels[1]
    assert kernel == {"kind": "bilateral", **dict(zip(("xy", "color", "weight"), MEASURED, strict=True))}


@pytest.mark.parametrize(
    ("image", "unit"),
    [(IMAGE / np.float32(255), 1), (NORMALISED, np.ptp(NORMALISED))],
    ids=["0 to 1", "norm"],
)
def test_a_layer_with_images_in_other_units_warns_once(image, unit):
    (message,) = layer(image, np.log(P))
    assert "the kernel sees hardly an edge" in message
    assert f"color={6 / 255 * unit:.3g}, that of the default" in message
    own = [Bilateral(8, 0.6 * unit)]  # less than the range, and more than half of it
    assert "hardly an edge" in refine(image, kernels=own)[0] and layer(image, np.log(P), kernels=own)
    assert refine(image, kernels=[Bilateral(8, 0.4 * unit)]) == []
    assert refine(100 * image, kernels=[Bilateral(8, 60 * unit)]) == []  # dark, but no network's input
    assert refine(image) == [message]
    assert layer(image, np.log(P), kernels=[Spatial(2), Bilateral(8, 13 / 255)]) == []


# --- probabilities and logits --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_probabilities_passed_as_logits(dtype):
    p = P.astype(dtype)
    (message,) = refine(p=p, from_logits=True)
    assert "values that are not negative and sum to 1 over the labels, as probabilities do" in message
    assert "without from_logits=True" in message
    assert layer(IMAGE, p.astype(np.float32)) == [message]
    first = warned(lambda: fwcrf.refine(IMAGE.transpose(2, 0, 1), p.transpose(2, 0, 1), kernels=KERNELS,
                                        channel_axis=0, from_logits=True))  # fmt: skip
    assert first == [message]
    points = IMAGE.reshape(-1, 3)[:50].astype(np.float32)
    assert message in warned(
        lambda: fwcrf.refine_points(points, None, p.reshape(-1, 3)[:50], from_logits=True)
    )


def test_rounded_probabilities_passed_as_logits():
    p = np.random.default_rng(0).dirichlet(np.ones(21), IMAGE.shape[:2]).round(2)
    assert np.abs(p.sum(-1) - 1).max() > 0.02
    (message,) = refine(p=p, from_logits=True)
    assert "as probabilities do" in message
    assert refine(p=3 * p, from_logits=True) == refine(p=p - 0.1, from_logits=True) == []


def test_one_probability_per_pixel_passed_as_logits():
    (message,) = refine(p=P[..., 1], from_logits=True)
    assert "as probabilities do" in message and "torch.logit" in message
    assert refine(p=np.zeros((20, 26)), from_logits=True) == []
    assert refine(p=np.log(P[..., 1] / (1 - P[..., 1])), from_logits=True) == []


@pytest.mark.parametrize("logits", [np.log(P), 3 * P, P - 0.2], ids=["log", "positive", "below 0"])
def test_logits_get_no_warning(logits):
    assert refine(p=logits, from_logits=True) == []
    assert layer(IMAGE, logits) == []


def test_logits_passed_as_probabilities():
    (message,) = refine(p=5 * P + 1)
    assert "sums to 8 ... 8 over the labels; expected 1" in message and "pass from_logits=True" in message
    assert refine() == []


# --- nothing can change --------------------------------------------------------------------------

LABELS = P.argmax(-1)
ONE_SIDE = (np.indices((20, 26))[1] > 12).astype(int)


def test_a_confidence_at_which_no_pixel_can_change():
    (message,) = refine(p=LABELS, from_labels=0.95)
    assert "none could: from_labels=0.95 puts the given label ahead by 2.94, and the kernels weigh" in message
    assert "at most about 2 together. Pass a confidence below 0.88, such as from_labels=0.7" in message
    (message,) = refine(p=LABELS, from_labels=0.94, kernels=None)
    assert "Pass a confidence below 0.937, such as" in message
    (message,) = refine(p=LABELS, from_labels=0.7, kernels=[Spatial(2, weight=0.4)])
    assert "Pass a confidence below 0.598, such as from_labels=0.549" in message
    assert refine(p=LABELS, from_labels=0.7) == []
    assert refine(p=LABELS, from_labels=0.95, kernels=[Bilateral(8, 13, weight=4.0)]) == []
    assert refine(p=LABELS, from_labels=0.95, num_steps=0) == []


def test_weights_at_which_no_pixel_can_change():
    sure = np.where(np.eye(3)[LABELS] > 0, 0.98, 0.01)
    (message,) = refine(p=sure)
    assert "the best label of each pixel is ahead by at least 4.58 in its logits" in message
    assert "raise the weights of the kernels" in message
    assert refine(p=sure, compatibility=[[0.0, 9, 9], [9, 0, 9], [9, 9, 0]]) == []
    weak = [Bilateral(8, 13, weight=0.0)]
    assert "the kernels weigh at most about 0 together" in refine(kernels=weak)[0]
    # The sums of such kernels are not known beforehand.
    assert refine(p=sure, kernels=[Spatial(1, normalization="none", weight=1e-3)]) == []


def test_labels_that_are_right_already_get_no_warning():
    image = (100 + 100 * ONE_SIDE).astype(np.uint8)
    assert refine(image, p=ONE_SIDE, from_labels=0.7) == []


def test_scribbles_that_fix_every_pixel():
    (message,) = refine(scribbles=np.zeros((20, 26), np.uint8))
    assert "scribbles has a label for every pixel" in message and "Expected -1 where there is no" in message
    some = np.full((20, 26), -1)
    some[3, 4] = 1
    assert refine(scribbles=some) == []


# --- layouts -------------------------------------------------------------------------------------

VOLUME, VOXELS = photograph(9, 10, 12, channels=1), probabilities(9, 10, 12)


def tensor(a):
    return torch.from_numpy(np.moveaxis(a, -1, 0).copy())


def test_slices_taken_for_a_batch():
    (message,) = refine(VOLUME, VOXELS)
    assert "taken for a batch of 9 independent grey images" in message and "pass spatial_dims=3" in message
    assert refine(VOLUME, VOXELS, spatial_dims=2) == []
    assert refine(VOLUME, VOXELS, spatial_dims=3) == []
    assert refine(VOLUME, VOXELS, spacing=(3.0, 1.0, 1.0)) == []
    assert refine(VOLUME, VOXELS, kernels=[Bilateral((8, 8), 13)]) == []
    assert refine(VOLUME[:4], VOXELS[:4]) == []
    assert refine(photograph(9, 10, 12), VOXELS) == []  # a batch in colour, or a video


def test_slices_taken_for_channels():
    image, p = tensor(VOLUME)[0], tensor(np.log(VOXELS))
    (message,) = refine(image, p, from_logits=True)
    assert "3 maps of 9 labels on one image of 9 channels. If it is a volume of 9 slices, pass" in message
    assert refine(image, p, from_logits=True, spatial_dims=3) == []
    three = torch.stack([tensor(P)] * 2)
    assert refine(tensor(IMAGE), three) == []


def test_volumes_that_do_not_fit_as_images_name_spatial_dims():
    for image, p in ((tensor(VOLUME), tensor(VOXELS)), (VOLUME[..., 0], VOXELS)):
        with pytest.raises(ValueError, match="spatial_dims=3"):
            fwcrf.refine(image, p)


SMALL = np.random.default_rng(0).normal(size=(7, 9, 21)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
def test_scores_with_their_labels_elsewhere_are_refused_by_proportions(axis):
    image = photograph(56, 72)
    moved = np.moveaxis(SMALL, -1, axis)
    settings = {"from_logits": True, "resize": "scores", "num_steps": 1}
    said = rf"63|labels of logits seem to be at axis {axis}: pass np.moveaxis\(logits, {axis}, 2\)"
    with pytest.raises(ValueError, match=said):
        fwcrf.refine(image, moved, **settings)
    assert refine(image, SMALL, **settings) == []
    assert refine(image, np.moveaxis(SMALL, -1, 0)[:, :7, :7].transpose(1, 2, 0), **settings) == []


def test_torch_scores_with_their_labels_elsewhere_are_refused_by_proportions():
    with pytest.raises(ValueError, match=r"at axis 2: pass logits.movedim\(2, 0\)"):
        fwcrf.refine(tensor(photograph(56, 72)), torch.from_numpy(SMALL), from_logits=True, resize="scores")


def verdict(image, shape, axis, **known):
    """The answer to scores of this shape with labels at this axis: "fits", "warns" or "refuses"."""
    scores = np.broadcast_to(np.float32(0), shape)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            check_label_axis(image, locate(scores, "logits", len(image), axis), **known)
        except ValueError:
            return "refuses"
    return "warns" if said else "fits"


@pytest.mark.parametrize(("image", "shape"), [((333, 500), (21, 43, 64)), ((143, 214), (21, 18, 27))])
def test_labels_first_are_refused_for_photographs_of_usual_proportions(image, shape):
    assert verdict(image, shape, 2) == "refuses"
    assert verdict(image, shape, 2, told=True) == "refuses"
    assert verdict(image, shape, 2, num_labels=shape[2]) == "fits"  # the user knows their number
    assert verdict(image, shape, 0) == "fits"


def test_slices_of_a_volume_that_are_taken_for_channels_are_named():
    with pytest.raises(ValueError, match="If they are the slices of a volume, pass spatial_dims=3"):
        fwcrf.refine(torch.zeros(16, 20, 26), torch.full((16, 3, 20, 26), 1 / 3))


def test_two_axes_that_may_have_the_labels_are_both_named():
    logits = locate(np.zeros((21, 21, 32)), "logits", 2)
    said = r"seem to be at axis 0 or 1: pass np.moveaxis\(logits, 0, 2\) or np.moveaxis\(logits, 1, 2\)"
    with pytest.raises(ValueError, match=said):
        check_label_axis((333, 500), logits)


def test_grids_that_cannot_tell_the_axis_of_the_labels_warn():
    image, cube = photograph(321, 321), np.zeros((21, 21, 21), np.float32)
    settings = {"from_logits": True, "resize": "scores", "num_steps": 0}
    (message,) = refine(image, cube, **settings)
    assert "which fits; but so do labels at axis 0 or 1. If they are there, pass np.moveaxis(lo" in message
    assert message.endswith("if not, pass channel_axis=2.")
    assert refine(image, cube, **settings, channel_axis=2) == []
    assert len(refine(image, cube, **settings, num_labels=21)) == 1  # every axis has so many
    (message,) = refine(tensor(image), torch.from_numpy(cube), **settings)
    assert "pass logits.movedim(1, 0)" in message and message.endswith("if not, pass num_labels=21.")
    assert refine(tensor(image), torch.from_numpy(cube), **settings, num_labels=21) == []


def padded(size, stride):
    return -(-size // 32) * 32 // stride


@pytest.mark.parametrize(
    "samples", [lambda n, s: -(-n // s), lambda n, s: n // s, lambda n, s: (n - 1) // s + 1, padded]
)
def test_grids_of_networks_are_never_refused_and_the_wrong_axis_is_never_silent(samples):
    """Strides of networks, rounded up, down, with both ends, and padded; numbers of labels of data sets."""
    rng = np.random.default_rng(0)
    found = {"right": Counter(), "wrong": Counter()}
    for _ in range(2000):
        image = tuple(map(int, rng.integers(128, 1100, 2)))
        stride, num_labels = int(rng.choice([4, 8, 16, 32])), int(rng.choice([2, 11, 19, 21, 34, 60, 150]))
        grid = [samples(size, stride) for size in image]
        found["right"][verdict(image, (*grid, num_labels), 2)] += 1
        found["wrong"][verdict(image, (num_labels, *grid), 2)] += 1
    assert found["right"]["refuses"] == 0 and found["right"]["fits"] > 1800, found
    assert found["wrong"]["fits"] == 0 and found["wrong"]["refuses"] > 1800, found


@needs("voc2012/val/logits_deeplabv3")
def test_the_axis_of_logits_of_voc_is_found():
    """Of labels first, one grid of 28 x 21 for 224 x 166 pixels fits both orders, and is warned of."""
    found = Counter()
    val = ROOT / "voc2012" / "val"
    for path in sorted((val / "logits_deeplabv3").glob("*.npz")):
        with Image.open(val / "images" / f"{path.stem}.jpg") as image, np.load(path) as stored:
            size, (L, *grid) = image.size[::-1], stored["logits"].shape
        for order, shape in (("last", (*grid, L)), ("first", (L, *grid))):
            for axis in (0, 2):
                found[order, axis, verdict(size, shape, axis)] += 1
    assert found["last", 2, "fits"] == found["last", 0, "refuses"] == 223
    assert found["first", 0, "fits"] + found["first", 0, "warns"] == 223
    assert found["first", 2, "refuses"] + found["first", 2, "warns"] == 223
    assert found["first", 2, "warns"] <= 2, found


# --- labels that disappear -----------------------------------------------------------------------


def with_object(probability, size=4):
    """An image of one colour, and scores with a small object in noise."""
    p = np.full((30, 40, 3), (0.98, 0.01, 0.01))
    p[10 : 10 + size, 10 : 10 + size] = ((1 - probability) * 0.9, probability, (1 - probability) * 0.1)
    return np.full((30, 40, 3), 90, np.uint8), p


STRONG = [Bilateral(20, 13, weight=8.0)]


def test_a_sure_label_that_disappears():
    (message,) = refine(*with_object(0.93), kernels=STRONG)
    assert message.startswith("label 1 disappeared, of up to 16 pixels, although the scores are sure of it")
    assert refine(*with_object(0.7), kernels=STRONG) == []  # the network is not sure
    assert refine(*with_object(0.93, size=2), kernels=STRONG) == []  # a few pixels
    assert refine(*with_object(0.93), kernels=STRONG, tile=16, overlap=12) == [message]
    image, p = with_object(0.93)
    (of_batch,) = refine(
        image, np.stack([np.roll(p, 1, -1)[:, ::-1] * 0 + (0.9, 0.05, 0.05), p]), kernels=STRONG
    )
    assert "label 1 of image 1 disappeared" in of_batch
    both = {"kernels": STRONG, "return_probabilities": True}
    assert refine(torch.from_numpy(image).movedim(-1, 0), torch.from_numpy(p).movedim(-1, 0), **both) == [
        message
    ]


def test_scribbles_do_not_make_the_network_sure():
    image, p = with_object(0.7)
    p = p[..., [1, 0, 2]]  # the object is label 0
    scribbles = np.full((30, 40), -1)
    scribbles[20:24, 20:24] = 1
    assert refine(image, p, kernels=STRONG, scribbles=scribbles) == []
