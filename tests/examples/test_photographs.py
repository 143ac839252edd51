"""The examples: photographs of scikit-image with stored scores of a network."""

import sys

import numpy as np
import pytest

import fwcrf
from fwcrf import examples

pytest.importorskip("skimage", reason="scikit-image has the photographs: pip install 'fwcrf[images]'")

# The classes that cover most of each photograph, by eye ("rocket" has no class of its own in PASCAL VOC).
SEEN = {
    "astronaut": {"background", "person"},
    "camera": {"background", "person"},
    "chelsea": {"background", "cat"},
    "coffee": {"background", "diningtable"},
    "rocket": {"background", "boat"},
}


@pytest.mark.parametrize("name", examples.NAMES)
def test_photograph_logits_and_names_belong_together(name):
    image, logits, names = examples.load(name)
    assert (image.dtype, logits.dtype) == (np.uint8, np.float32)
    assert logits.shape == (*image.shape[:2], len(names)) and len(names) == 21
    share = np.bincount(logits.argmax(-1).ravel(), minlength=21) / logits[..., 0].size
    assert {names[label] for label in np.flatnonzero(share > 0.05)} >= SEEN[name]
    assert share[[names.index(seen) for seen in SEEN[name]]].sum() > 0.85


def test_sample_i_lies_at_pixel_8_i():
    full, own = (examples.load("rocket", upsample=upsample).logits for upsample in (True, False))
    assert own.shape == (55, 81, 21)  # the last row and the last column lie beyond the 427 x 640 pixels
    np.testing.assert_allclose(full[::8, ::8], own[:54, :80], atol=1e-5)
    np.testing.assert_allclose(full[4, 12], own[:2, 1:3].mean((0, 1)), atol=1e-5)


def test_an_example_is_refined_by_the_arguments_it_comes_as():
    image, logits, names = examples.load("camera")
    labels = fwcrf.refine(image[::4, ::4], logits[::4, ::4], from_logits=True)
    assert names[labels[60, 40]] == "person" and names[labels[0, 0]] == "background"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no example 'cat'; expected one of astronaut, .*chelsea"):
        examples.load("cat")


def test_a_photograph_of_another_size_is_refused(monkeypatch):
    import skimage.data

    monkeypatch.setattr(skimage.data, "chelsea", lambda: np.zeros((150, 225, 3), np.uint8))
    with pytest.raises(ValueError, match=r"150 x 225 pixels; the logits are for 300 x 451\. Install"):
        examples.load("chelsea")


def test_without_scikit_image_the_message_has_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage.data", None)
    with pytest.raises(ModuleNotFoundError, match=r"skimage.* pip install 'fwcrf\[images\]'"):
        examples.load("chelsea")
