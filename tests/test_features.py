"""Images as points: layouts, dtypes, and what is refused."""

import numpy as np
import pytest
import torch
from helpers import assert_rounding, uniform

from fwcrf.features import bandwidths, bilateral, pixels, positions

H, W, C = 4, 5, 3
IMAGE = np.random.default_rng(0).integers(0, 256, (H, W, C), dtype=np.uint8)  # the seeded image of this file
VALUES = torch.from_numpy(IMAGE.reshape(H * W, C).copy()).float()


def read_only():
    image = IMAGE.copy()
    image.flags.writeable = False
    return image


NUMPY = {
    "uint8": lambda: IMAGE,
    "uint16": lambda: IMAGE.astype(np.uint16),
    "int64": lambda: IMAGE.astype(np.int64),
    "float16": lambda: IMAGE.astype(np.float16),
    "float32": lambda: IMAGE.astype(np.float32),
    "read only": read_only,
    "negative strides": lambda: np.ascontiguousarray(IMAGE[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
    "Fortran order": lambda: np.asfortranarray(IMAGE),
    "transposed": lambda: np.ascontiguousarray(IMAGE.transpose(1, 0, 2)).transpose(1, 0, 2),
    "every other": lambda: np.repeat(IMAGE, 2, axis=1)[:, ::2],
    "broadcast": lambda: np.broadcast_to(IMAGE[None], (1, H, W, C))[0],
    "big-endian": lambda: IMAGE.astype(">u2"),
    "big-endian float": lambda: IMAGE.astype(">f4"),
}


@pytest.mark.parametrize("image", NUMPY.values(), ids=NUMPY)
def test_numpy_images(image):
    values, shape = pixels(image())
    assert shape == (H, W)
    assert values.dtype == torch.float32
    assert torch.equal(values, VALUES)


def test_double_stays_double():
    assert torch.equal(pixels(IMAGE.astype(np.float64))[0], VALUES.double())
    assert pixels(torch.zeros(C, H, W, dtype=torch.float64))[0].dtype == torch.float64


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_numpy_channel_axis(axis):
    values, shape = pixels(np.moveaxis(IMAGE, -1, axis), channel_axis=axis)
    assert shape == (H, W)
    assert torch.equal(values, VALUES)


def test_numpy_grey():
    values, shape = pixels(IMAGE[..., 0], channel_axis=None)
    assert shape == (H, W)
    assert torch.equal(values, VALUES[:, :1])


def test_numpy_image_is_copied():
    image = IMAGE.astype(np.float64)
    values, _ = pixels(image)
    values += 1
    assert np.array_equal(image, IMAGE)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float16, torch.float32], ids=str)
def test_torch_images_have_channels_first(dtype):
    values, shape = pixels(torch.from_numpy(IMAGE).permute(2, 0, 1).to(dtype))
    assert shape == (H, W)
    assert values.dtype == torch.float32
    assert torch.equal(values, VALUES)


def test_batches():
    batch = np.stack([IMAGE, 255 - IMAGE])
    values, shape = pixels(batch)
    assert (tuple(values.shape), shape) == ((2, H * W, C), (H, W))
    assert torch.equal(values[0], VALUES) and torch.equal(values[1], 255 - VALUES)
    again, _ = pixels(torch.from_numpy(batch).permute(0, 3, 1, 2))
    assert torch.equal(again, values)


@pytest.mark.parametrize("grid", [(7,), (3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("batch", [(), (2,)], ids=["image", "batch"])
def test_any_number_of_grid_axes(grid, batch):
    image = uniform(*batch, C, *grid)
    values, shape = pixels(image, spatial_dims=len(grid))
    assert shape == grid
    assert torch.equal(values.unflatten(-2, grid), image.movedim(-len(grid) - 1, -1))


@pytest.mark.parametrize(
    "image", [torch.zeros(H, W), torch.zeros(5), torch.zeros(1, 2, 3, H, W)], ids=lambda t: str(t.dim())
)
def test_wrong_number_of_axes_for_torch(image):
    with pytest.raises(ValueError, match=r"\(channels, \*grid\).*spatial_dims") as error:
        pixels(image)
    assert str(tuple(image.shape)) in str(error.value)


@pytest.mark.parametrize("image", [np.zeros((H, W)), np.zeros((1, 2, H, W, 3))], ids=lambda a: str(a.ndim))
def test_wrong_number_of_axes_for_numpy(image):
    with pytest.raises(ValueError, match=r"\(\*grid, channels\)") as error:
        pixels(image)
    assert str(image.shape) in str(error.value)


def test_channel_axis_that_does_not_exist():
    with pytest.raises(ValueError, match="channel_axis=3"):
        pixels(IMAGE, channel_axis=3)


@pytest.mark.parametrize("dtype", [np.bool_, np.complex64, np.complex128], ids=lambda d: d.__name__)
@pytest.mark.parametrize(
    "convert", [np.asarray, lambda a: torch.from_numpy(a).permute(2, 0, 1)], ids=["numpy", "torch"]
)
def test_neither_bool_nor_complex(dtype, convert):
    with pytest.raises(TypeError, match="expected real numbers"):
        pixels(convert(IMAGE.astype(dtype)))


@pytest.mark.parametrize(
    "image", [IMAGE.tolist(), None, "image.png", 3], ids=["list", "none", "path", "number"]
)
def test_neither_torch_nor_numpy(image):
    with pytest.raises(TypeError, match=f"image is a {type(image).__name__}.*torch tensor or a numpy array"):
        pixels(image)


@pytest.mark.parametrize("shape", [(0, W, C), (H, 0, C), (H, W, 0), (0, H, W, C)], ids=str)
def test_empty_images(shape):
    with pytest.raises(ValueError, match="at least one pixel, channel and image") as error:
        pixels(np.zeros(shape))
    assert str(shape) in str(error.value)


# --- bandwidths ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int64(2), torch.tensor(2.0), [2, 2.0], (2, 2)], ids=repr
)
def test_bandwidths(value):
    assert bandwidths(value, 2, "xy") == (2.0, 2.0)


@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])], ids=["numpy", "torch"])
def test_bandwidths_from_an_array(value):
    assert bandwidths(value, 2, "xy") == (1.0, 2.0)


@pytest.mark.parametrize(
    "value", [0, 0.0, -1.0, float("nan"), float("inf"), [1.0, 0.0], [float("nan"), 1.0]], ids=repr
)
def test_bandwidths_must_be_positive(value):
    with pytest.raises(ValueError, match=r"color=.*positive, finite standard deviations"):
        bandwidths(value, 2, "color")


@pytest.mark.parametrize("value", [[], [1.0], [1.0, 2.0, 3.0]], ids=repr)
def test_bandwidths_must_fit(value):
    with pytest.raises(ValueError, match=rf"xy=.*has {len(value)} entries; expected one number or 2"):
        bandwidths(value, 2, "xy")


# --- features ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6,), (2, 3), (2, 3, 2), (1, 1)], ids=str)
def test_positions_are_in_row_major_order(shape):
    expected = torch.tensor(list(np.ndindex(shape)), dtype=torch.float64)
    assert torch.equal(positions(shape, torch.empty((), dtype=torch.float64)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_bilateral_features(dtype):
    """Row over the first bandwidth, column over the second, then colours."""
    values, shape = pixels(IMAGE)
    features = bilateral(values.to(dtype), shape, (2.0, 7.0), (10.0, 20.0, 40.0))
    expected = [
        [row / 2, column / 7, r / 10, g / 20, b / 40]
        for row in range(H)
        for column in range(W)
        for r, g, b in [IMAGE[row, column].tolist()]
    ]
    assert_rounding(features, torch.tensor(expected, dtype=dtype))


def test_bilateral_features_of_a_batch():
    values = uniform(2, 12, 3)
    features = bilateral(values, (3, 4), 5.0, 0.1)
    for one, image in zip(features, values, strict=True):
        assert torch.equal(one, bilateral(image, (3, 4), 5.0, 0.1))


@pytest.mark.parametrize("shape", [(3, 12, 3), (12, 3), (2, 12, 1), (2, 3, 12, 4)], ids=str)
def test_bilateral_features_of_images_with_channels_first(shape):
    values = uniform(*shape)
    planes = values.mT.contiguous().mT
    assert torch.equal(bilateral(planes, (3, 4), 5.0, 0.1), bilateral(values, (3, 4), 5.0, 0.1))
