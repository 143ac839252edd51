"""Resampling against torch and against formulas, in windows, and through ``refine``."""

import numpy as np
import pytest
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from refine_scenes import KERNELS, photograph, probabilities
from torch.nn import functional

import fwcrf
from fwcrf.inputs.resample import aligned, needed, resample, reverse

SIZES = [((7,), (20,), "linear"), ((5, 6), (9, 31), "bilinear"), ((3, 4, 5), (6, 9, 7), "trilinear")]


def whole(size):
    return tuple(slice(0, n) for n in size)


def resized(x, grid, align="centers"):
    """The values ``(*source, channels)`` on another grid."""
    return resample(x, whole(grid), aligned(grid, x.shape[-len(grid) - 1 : -1], align))


@pytest.mark.parametrize(("source", "grid", "mode"), [*SIZES, ((5, 1), (9, 4), "bilinear")])
@pytest.mark.parametrize("align", ["centers", "corners"])
def test_more_pixels_are_linear_between_samples(source, grid, mode, align):
    x = normal(2, *source, 3)
    expected = functional.interpolate(
        x.movedim(-1, 1), size=grid, mode=mode, align_corners=align == "corners"
    )
    torch.testing.assert_close(resized(x, grid, align), expected.movedim(1, -1))


@pytest.mark.parametrize(("source", "grid"), [((24,), (6,)), ((12, 15), (4, 3)), ((4, 6, 8), (2, 2, 2))])
def test_fewer_pixels_are_means(source, grid):
    x = normal(2, *source, 3)
    expected = functional.interpolate(x.movedim(-1, 1), size=grid, mode="area").movedim(1, -1)
    torch.testing.assert_close(resized(x, grid), expected)


def test_means_count_pixels_by_the_part_that_is_covered():
    x = torch.tensor([3.0, 6.0, 9.0]).view(3, 1)
    torch.testing.assert_close(resized(x, (2,)).flatten(), torch.tensor([4.0, 8.0]))


def test_means_between_corners_are_around_the_samples():
    # Pixels lie at samples 0, 2 and 4, and each covers two samples: half of the one before and after it.
    x = torch.tensor([4.0, 8.0, 16.0, 32.0, 64.0]).view(5, 1)
    means = [(4 + 8 / 2) / 1.5, (8 / 2 + 16 + 32 / 2) / 2, (32 / 2 + 64) / 1.5]
    torch.testing.assert_close(resized(x, (3,), "corners").flatten(), torch.tensor(means))


@pytest.mark.parametrize(("stride", "offset"), [(8, 0), (4, 1.5), (5, -2.5), (2.5, 0.25), (0.5, 0)])
def test_samples_lie_at_offset_plus_stride_times_their_number(stride, offset):
    n = 6
    x = normal(n, 2)
    size = round(offset + stride * (n - 1)) + (3 if stride > 3 else 1)
    found = resized(x, (size,), (stride, offset))
    for y in range(size):
        at = min(max((y - offset) / stride, 0.0), n - 1.0)
        if stride >= 1:
            left, right = x[int(at)], x[min(int(at) + 1, n - 1)]
            expected = left + (at - int(at)) * (right - left)
        else:  # a pixel is the mean of the two samples that it covers
            ends = max(at - 0.5 / stride, -0.5), min(at + 0.5 / stride, n - 0.5)
            cover = [max(0.0, min(i + 0.5, ends[1]) - max(i - 0.5, ends[0])) for i in range(n)]
            expected = (x.T * torch.tensor(cover)).sum(-1) / sum(cover)
        torch.testing.assert_close(found[y], expected, msg=f"pixel {y}")


def test_a_stride_is_as_align_corners_and_a_crop():
    logits = normal(1, 21, 9, 7)
    full = functional.interpolate(logits, size=(65, 49), mode="bilinear", align_corners=True)
    expected = full[0, :, :60, :44].movedim(0, -1)
    torch.testing.assert_close(resized(logits[0].movedim(0, -1), (60, 44), (8, 0)), expected)
    each = resized(logits[0].movedim(0, -1), (60, 44), ([8, 8.0], np.array([0, 0])))
    assert torch.equal(each, resized(logits[0].movedim(0, -1), (60, 44), (8, 0)))


@given(st.integers(1, 30), st.integers(1, 30), st.sampled_from(["centers", "corners", "strided"]), st.data())
def test_a_window_is_a_part_of_the_whole(source, grid, align, data):
    start = data.draw(st.integers(0, grid - 1))
    window = (slice(start, data.draw(st.integers(start + 1, grid))), slice(0, 4))
    x = normal(source, 4, 2, seed=source)
    size = (grid, 4)
    if align == "strided":
        align = ((grid / source, 1), (0.3 * grid / source, 0))
    for alignment in (
        aligned(size, (source, 4), align),
        reverse(aligned((source, 4), size, align if isinstance(align, str) else ((source / grid, 1), 0))),
    ):
        expected = resample(x, whole(size), alignment)[window]
        found = resample(x[needed(window, alignment)], window, alignment)
        torch.testing.assert_close(found, expected)
        assert expected.min() >= x.min() - 1e-12 and expected.max() <= x.max() + 1e-12


@pytest.mark.parametrize("align", ["centers", "corners", (1, 0)])
def test_the_same_size_is_the_same(align):
    x = normal(5, 6, 3)
    assert torch.equal(resized(x, (5, 6), align), x)


# --- through refine ------------------------------------------------------------------------------

ALIGNED = {
    "centers": lambda s, grid: functional.interpolate(s, size=grid, mode="bilinear"),
    "corners": lambda s, grid: functional.interpolate(s, size=grid, mode="bilinear", align_corners=True),
    "strided": lambda s, grid: ALIGNED["corners"](s, [8 * (n - 1) + 1 for n in s.shape[-2:]])[
        ..., : grid[0], : grid[1]
    ],
}
IMAGE = photograph(30, 38)
LOGITS = np.log(probabilities(5, 6))
ALIGN = {"centers": "centers", "corners": "corners", "strided": (8, 0)}


@pytest.mark.parametrize("align", ALIGNED)
def test_refine_brings_scores_to_the_image(align):
    upsampled = ALIGNED[align](torch.from_numpy(LOGITS).movedim(-1, 0)[None], (30, 38))[0].movedim(0, -1)
    settings = {"kernels": KERNELS, "from_logits": True, "return_probabilities": True}
    _, expected = fwcrf.refine(IMAGE, upsampled.numpy(), **settings)
    _, found = fwcrf.refine(IMAGE, LOGITS, resize="scores", align=ALIGN[align], **settings)
    np.testing.assert_allclose(found, expected, atol=2e-5)


@pytest.mark.parametrize("align", ALIGN.values(), ids=ALIGN)
@pytest.mark.parametrize("resize", ["scores", "image"])
def test_tiles_read_scores_as_the_whole_does(align, resize):
    settings = {"kernels": KERNELS, "from_logits": True, "return_probabilities": True, "num_steps": 0}
    settings |= {"resize": resize, "align": align}
    _, expected = fwcrf.refine(IMAGE, LOGITS, **settings)
    _, found = fwcrf.refine(IMAGE, LOGITS, tile=7 if resize == "scores" else 2, overlap=3, **settings)
    np.testing.assert_array_equal(found, expected)
    settings["num_steps"] = 3
    labels, _ = fwcrf.refine(IMAGE, LOGITS, **settings)
    tiled, _ = fwcrf.refine(IMAGE, LOGITS, tile=15 if resize == "scores" else 3, overlap=15, **settings)
    assert (tiled == labels).mean() > 0.99


def test_an_image_is_brought_to_strided_scores_as_the_mean_around_each_sample():
    image = np.arange(33, dtype=np.float32)[:, None].repeat(17, 1)[..., None] * 7
    logits = np.log(probabilities(5, 3))
    expected = np.array([(0 + 1 + 2 + 3 + 4 / 2) / 4.5, 8, 16, 24, (32 + 31 + 30 + 29 + 28 / 2) / 4.5]) * 7
    smaller = np.float32(expected)[:, None].repeat(3, 1)[..., None]
    settings = {"kernels": KERNELS, "from_logits": True, "return_probabilities": True}
    _, found = fwcrf.refine(image, logits, resize="image", align=(8, 0), **settings)
    np.testing.assert_allclose(found, fwcrf.refine(smaller, logits, **settings)[1], atol=1e-5)


def test_volumes_and_batches_are_aligned():
    volume, logits = photograph(4, 9, 17, channels=1), np.log(probabilities(4, 2, 3))
    strided = {"resize": "scores", "align": ((1, 8, 8), 0), "from_logits": True, "num_steps": 0}
    _, found = fwcrf.refine(volume, logits, spatial_dims=3, return_probabilities=True, **strided)
    x = torch.from_numpy(logits).movedim(-1, 0)[None]
    expected = functional.interpolate(x, size=(4, 9, 17), mode="trilinear", align_corners=True)
    np.testing.assert_allclose(found, expected[0].softmax(0).movedim(0, -1), atol=1e-6)
    # The same slices as a batch of images.
    strided["align"] = (8, 0)
    batch = fwcrf.refine(volume, logits, spatial_dims=2, return_probabilities=True, **strided)[1]
    np.testing.assert_allclose(batch, found, atol=1e-6)
    label_map = logits.argmax(-1)
    corners = {"resize": "scores", "align": "corners", "from_labels": 0.8, "num_steps": 0}
    assert fwcrf.refine(volume, label_map, spatial_dims=3, **corners).shape == (4, 9, 17)


REFUSED = {
    "word": ("middle", "align='middle' is not known; expected 'centers', 'corners' or (stride, offset)"),
    "number": (8, "align=8 is not known"),
    "three": ((8, 0, 0), "align=(8, 0, 0) is not known"),
    "stride of 0": ((0, 0), "align=0; expected a positive stride in pixels of the image, or 2 of them"),
    "three strides": (((8, 8, 8), 0), "align=(8, 8, 8) has 3 entries; expected a positive stride"),
    "infinite offset": ((8, float("inf")), "align=inf; expected an offset in pixels"),
    "words": (("8", "0"), "align='8'; expected a positive stride"),
    "too few samples": (
        (4, 0),
        "stride 4 and offset 0, and the logits have 5 samples along axis 0 of the grid, which lie at "
        "pixels 0 to 16; expected them to cover the 30 pixels of the image, 0 to 29, up to one stride. Pass ",
    ),
    "padded": ((15, 0), "0 to 60; expected them to cover the 30 pixels of the image, 0 to 29, up to one"),
    "padded, remedy": ((15, 0), "or if its input was padded at the end, the first 3 samples of axis 0."),
    "offset": ((7, 9), "lie at pixels 9 to 37"),
}


@pytest.mark.parametrize("align", REFUSED)
def test_an_alignment_that_does_not_fit_is_refused(align):
    given, said = REFUSED[align]
    with pytest.raises((ValueError, TypeError)) as raised:
        fwcrf.refine(IMAGE, LOGITS, from_logits=True, resize="scores", align=given)
    assert said in str(raised.value)


def test_an_alignment_without_resize_is_refused():
    with pytest.raises(ValueError, match="align='corners' without resize=; expected resize='scores'"):
        fwcrf.refine(IMAGE, np.log(probabilities(30, 38)), from_logits=True, align="corners")
