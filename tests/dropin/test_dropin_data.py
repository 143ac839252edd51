"""Photographs: pydensecrf's own examples with their published results, and real scores beside its answer."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fwcrf.pydensecrf import densecrf, utils

DATA = Path(os.environ.get("FWCRF_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not (DATA / "examples").is_dir(), reason=f"no data at {DATA}: FWCRF_DATA says where"),
]

EXAMPLES = DATA / "examples" / "pydensecrf"
DRAWINGS = {"anno1": "im1", "anno1-b": "im1", "anno2": "im2", "anno3": "im3"}
MSRC = ["12_33_s", "4_11_s"]


def image(path):
    with Image.open(path) as opened:
        return np.array(opened.convert("RGB"))


def color_numbers(path):
    r, g, b = np.moveaxis(image(path).astype(np.int64), -1, 0)
    return r + 256 * g + 65536 * b


def drawn(name):
    """An image, the unary of a drawing over it, and the colours of its labels."""
    numbers = color_numbers(EXAMPLES / f"{name}.png")
    colors, labels = np.unique(numbers, return_inverse=True)
    unknown = 0 in colors
    colors = colors[1:] if unknown else colors
    unary = utils.unary_from_labels(labels.reshape(numbers.shape), len(colors), 0.7, zero_unsure=unknown)
    return image(EXAMPLES / f"{DRAWINGS[name]}.png"), unary, colors


def voc(name):
    """An image and the unary of a network's scores."""
    photograph = image(DATA / "voc2012" / "val" / "images" / f"{name}.jpg")
    with np.load(DATA / "voc2012" / "val" / "logits_deeplabv3" / f"{name}.npz") as stored:
        logits = torch.from_numpy(stored["logits"].astype(np.float32))
    size = [8 * (length - 1) + 1 for length in logits.shape[1:]]
    full = torch.nn.functional.interpolate(logits[None], size, mode="bilinear", align_corners=True)[0]
    height, width = photograph.shape[:2]
    return photograph, utils.unary_from_softmax(full[:, :height, :width].softmax(0).numpy())


def msrc(name):
    """An image and the unary of the TextonBoost classifier."""
    folder = DATA / "examples" / "msrc_textonboost"
    with np.load(folder / f"{name}_prob.npz") as stored:
        return image(folder / f"{name}.png"), utils.unary_from_softmax(stored["prob"].astype(np.float32))


def marginals(dcrf, photograph, unary, steps, *, sxy=80, srgb=13, weights=(3, 10)):
    height, width = photograph.shape[:2]
    crf = dcrf.DenseCRF2D(width, height, len(unary))
    crf.setUnaryEnergy(unary)
    crf.addPairwiseGaussian(sxy=3, compat=weights[0])
    crf.addPairwiseBilateral(sxy=sxy, srgb=srgb, rgbim=photograph, compat=weights[1])
    return np.array(crf.inference(steps))


@pytest.mark.parametrize("name", DRAWINGS)
def test_labels_are_those_that_pydensecrf_publishes(name):
    photograph, unary, colors = drawn(name)
    found = colors[marginals(densecrf, photograph, unary, 5).argmax(0)]
    published = color_numbers(EXAMPLES / f"{name.replace('anno', 'out')}.png")
    # Measured: 99.88 to 99.96 %.
    assert (found == published.ravel()).mean() >= 0.998


CASES = {
    **{name: lambda name=name: (*drawn(name)[:2], {}) for name in DRAWINGS},
    "voc": lambda: (*voc("2007_000175"), {"sxy": 50, "srgb": 5, "weights": (3, 5)}),
    **{name: lambda name=name: (*msrc(name), {"sxy": (60, 40), "srgb": (10, 12, 14)}) for name in MSRC},
}


@pytest.mark.parametrize("name", CASES)
def test_marginals_are_those_of_pydensecrf(name):
    theirs = pytest.importorskip("pydensecrf.densecrf", reason="make .venv/.peers installs it")
    photograph, unary, settings = CASES[name]()
    ours = marginals(densecrf, photograph, unary, 10, **settings)
    expected = marginals(theirs, photograph, unary, 10, **settings)
    assert (ours.argmax(0) == expected.argmax(0)).mean() >= 0.9999
    # Measured: 6e-7 to 6e-6.
    assert np.abs(ours - expected).max() <= 1e-4
