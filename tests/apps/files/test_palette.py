import numpy as np
import pytest

from fwcrf.apps.files.palette import overlay, voc


def test_colours_as_published_with_the_data_set():
    """Of classes that everyone knows: aeroplane, cat, person, tvmonitor, and the border."""
    for label, colour in ((1, (128, 0, 0)), (8, (64, 0, 0)), (15, (192, 128, 128)), (20, (0, 64, 128))):
        assert tuple(voc()[label]) == colour
    assert tuple(voc()[255]) == (224, 224, 192)


def test_all_colours_differ():
    assert len(np.unique(voc(), axis=0)) == 256


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_overlay_colours_what_is_labelled_and_nothing_else(channels, dtype):
    image = np.arange(12 * channels).reshape(3, 4, channels).astype(dtype)
    labels = np.zeros((3, 4), int)
    labels[1, 2] = 15
    drawn, plain = overlay(image, labels), overlay(image, np.zeros_like(labels))
    assert drawn.dtype == np.uint8
    assert drawn.shape == (3, 4, 3)
    assert np.argwhere((drawn != plain).any(-1)).tolist() == [[1, 2]]
    if dtype == np.uint8 and channels >= 3:
        np.testing.assert_array_equal(plain, image[..., :3])


def test_overlay_of_a_constant_image():
    assert overlay(np.full((2, 2), 0.5), np.zeros((2, 2), int)).tolist() == [[[0] * 3] * 2] * 2
