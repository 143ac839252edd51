"""``fwcrf.refine`` is the composition of the pieces, whatever the arrays look like."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refine_scenes import KERNELS, composed, photograph, probabilities

import fwcrf
from fwcrf.kernels import Bilateral, Gaussian, Spatial

SIZES = {1: (23,), 2: (9, 13), 3: (4, 6, 7)}


def refine(image, p, **settings):
    settings.setdefault("kernels", KERNELS)
    return fwcrf.refine(image, p, **settings)


# --- layouts ------------------------------------------------------------------------------------


@st.composite
def arrays(draw):
    """An image and probabilities in some layout, how to pass them, and the answer that is expected."""
    dims = draw(st.sampled_from([1, 2, 3]))
    size = SIZES[dims]
    channels = draw(st.sampled_from([1, 2, 3, 5]))
    labels = draw(st.sampled_from([2, 3, 6]))
    batch = draw(st.sampled_from([None, 1, 2]))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    image_dtype = draw(st.sampled_from([np.uint8, np.int32, np.uint16, np.float32, np.float64, ">f4"]))
    count = batch or 1
    images = [photograph(*size, channels=channels, seed=i).astype(image_dtype) for i in range(count)]
    scores = [probabilities(*size, labels=labels, seed=10 + i, dtype=dtype) for i in range(count)]
    wide = [p.astype(np.float64 if dtype is np.float64 else np.float32) for p in scores]
    answers = [composed(i, p) for i, p in zip(images, wide, strict=True)]
    expected = np.stack([a[0] for a in answers])
    x = np.stack([a[1] for a in answers])
    image, p = np.stack(images), np.stack(scores)
    if batch is None:
        image, p, expected, x = image[0], p[0], expected[0], x[0]
    settings = {"spatial_dims": dims}
    is_torch, torch_image = draw(st.booleans()), draw(st.booleans())
    axis = draw(st.sampled_from([-1, -1 - dims]))
    if not is_torch or not torch_image:
        settings["channel_axis"] = axis
    grey = channels == 1 and batch is None and draw(st.booleans())

    def numpy_layout(a):
        a = np.moveaxis(a, -1, axis)
        return np.asfortranarray(a) if draw(st.booleans()) else a

    def torch_layout(a):
        a = a.astype(np.dtype(a.dtype).newbyteorder("="))
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(a, -1, -1 - dims)))

    image = image[..., 0] if grey else torch_layout(image) if torch_image else numpy_layout(image)
    p, x = (torch_layout(a) if is_torch else numpy_layout(a) for a in (p, x))
    return image, p, settings, expected, x


@given(arrays())
@settings(max_examples=50)
def test_any_layout_and_dtype_is_the_composition_in_the_form_that_came_in(drawn):
    image, p, given_settings, expected, x = drawn
    before = p.clone() if isinstance(p, torch.Tensor) else p.copy()
    labels, likely = refine(image, p, return_probabilities=True, **given_settings)
    assert type(labels) is type(likely) is type(p)
    assert labels.dtype in (np.int64, torch.int64)
    assert (likely.dtype, likely.shape) == (p.dtype, p.shape)
    np.testing.assert_array_equal(np.asarray(labels), expected)
    tolerance = 1e-3 if p.dtype in (np.float16, torch.float16) else 1e-5
    np.testing.assert_allclose(np.asarray(likely), np.asarray(x), atol=tolerance)
    assert (p == before).all()


def test_settings_reach_the_pieces():
    image, p = photograph(9, 13), probabilities(9, 13)
    for chosen in (
        {"solver": "mf", "num_steps": 3},
        {"solver": "efw", "rounding": "bcd"},
        {"solver": fwcrf.solvers.get("l2fw", weight=0.3)},
    ):
        np.testing.assert_array_equal(refine(image, p, **chosen), composed(image, p, **chosen)[0])
    M = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, 0.5], [3.0, 0.5, 0.0]])
    np.testing.assert_array_equal(refine(image, p, compatibility=M), composed(image, p, compat=M)[0])
    assert (refine(image, p, num_steps=0) == p.argmax(-1)).all()
    assert (refine(image, p, self_edges=True, num_steps=1) != refine(image, p, num_steps=1)).any()


def test_the_preset_of_the_paper_has_the_kernels_of_the_paper():
    image, p = photograph(30, 40), probabilities(30, 40)
    kernels = [Spatial(3), Bilateral(80, 13)]
    np.testing.assert_array_equal(fwcrf.refine(image, p, preset="paper"), composed(image, p, kernels)[0])


def test_an_image_may_be_shared_by_a_batch_of_scores():
    image, p = photograph(9, 13), np.stack([probabilities(9, 13, seed=s) for s in (1, 2)])
    expected = np.stack([refine(image, one) for one in p])
    np.testing.assert_array_equal(refine(image, p), expected)


def test_gaussian_kernels_take_the_channels_as_features():
    image, p = photograph(9, 13).astype(np.float32), probabilities(9, 13)
    found = refine(image, p, kernels=[Gaussian(precision=1 / 30**2, weight=2.0)])
    operator = Gaussian(precision=1 / 30**2).operator(torch.from_numpy(image).flatten(0, 1))
    P = fwcrf.pairwise.dense([operator], 3, weights=[2.0])
    E = fwcrf.Energy(P, -torch.from_numpy(p).flatten(0, 1).log())
    np.testing.assert_array_equal(found, fwcrf.minimize(E, "l2fw", num_steps=10).labels.view(9, 13).numpy())


def test_no_gradient_is_kept():
    image = torch.from_numpy(np.moveaxis(photograph(9, 13), -1, 0)).float().requires_grad_()
    logits = torch.randn(3, 9, 13, generator=torch.Generator().manual_seed(0)).requires_grad_()
    _, likely = refine(image, logits, from_logits=True, return_probabilities=True)
    assert not likely.requires_grad


class Slices:
    """What an array on disk has: a shape, a dtype and slices, of which it remembers the largest."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.largest = array, array.shape, array.dtype, 0

    def __getitem__(self, index):
        assert all(isinstance(i, slice) for i in index)
        part = self.array[index]
        self.largest = max(self.largest, part.size)
        return part

    def __setitem__(self, index, value):
        self.array[index] = value


def test_arrays_on_disk_are_read_and_written_in_parts(tmp_path):
    image, p = photograph(60, 50), probabilities(60, 50)
    for name, a in (("image", image), ("p", p)):
        np.save(tmp_path / f"{name}.npy", a)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("image", "p")]
    expected = refine(image, p, tile=20, overlap=5)
    np.testing.assert_array_equal(refine(*mapped, tile=20, overlap=5), expected)

    stored = Slices(image), Slices(p)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.uint8, (60, 50))
    likely = Slices(np.zeros((60, 50, 3), np.float16))
    done = []
    returned = refine(
        *stored, tile=20, overlap=5, out=(out, likely), return_probabilities=True,
        progress=lambda k, n: done.append((k, n)),
    )  # fmt: skip
    assert returned[0] is out and returned[1] is likely
    out.flush()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    assert (likely.array.argmax(-1) == expected).mean() > 0.99
    assert stored[1].largest <= 30 * 27 * 3
    assert done == [(k, 9) for k in range(1, 10)]


def test_pillow_images_are_arrays():
    from PIL import Image

    image, p = photograph(9, 13), probabilities(9, 13)
    np.testing.assert_array_equal(refine(Image.fromarray(image), p), refine(image, p))


# --- forms of scores ----------------------------------------------------------------------------


def test_logits_and_their_softmax_give_the_same():
    image = photograph(9, 13)
    logits = np.random.default_rng(0).normal(size=(9, 13, 4)).astype(np.float32)
    p = torch.softmax(torch.from_numpy(logits), -1).numpy()
    np.testing.assert_array_equal(refine(image, logits, from_logits=True), refine(image, p))


def test_infinite_logits_forbid_and_force():
    image, logits = photograph(9, 13), np.zeros((9, 13, 3), np.float32)
    logits[:, :, 1] = -np.inf
    logits[4, 5, 2] = np.inf
    labels = refine(image, logits, from_logits=True)
    assert not (labels == 1).any()
    assert labels[4, 5] == 2


@pytest.mark.parametrize("form", ["one channel", "no channel", "torch"])
def test_one_probability_or_logit_is_that_of_label_1(form):
    image, p = photograph(9, 13), probabilities(9, 13, labels=2)
    expected, x = refine(image, p, return_probabilities=True)
    one = {
        "one channel": p[..., 1:],
        "no channel": p[..., 1],
        "torch": torch.from_numpy(p[..., 1])[None, None],
    }[form]
    labels, likely = refine(image, one, return_probabilities=True)
    np.testing.assert_array_equal(np.asarray(labels).reshape(9, 13), expected)
    assert likely.shape == one.shape
    np.testing.assert_allclose(np.asarray(likely).reshape(9, 13), x[..., 1], atol=1e-6)
    logit = np.log(p[..., 1] / p[..., 0])
    np.testing.assert_array_equal(refine(image, logit, from_logits=True), expected)


def test_a_label_map_is_scores_with_its_confidence():
    image, labels = photograph(9, 13), probabilities(9, 13, labels=4).argmax(-1)
    c = 0.8
    p = np.full((9, 13, 4), 1 - c, np.float32)
    np.put_along_axis(p, labels[..., None], c, -1)
    p /= p.sum(-1, keepdims=True)
    expected, x = refine(image, p, return_probabilities=True)
    found, likely = refine(image, labels, from_labels=c, return_probabilities=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(likely, x, atol=1e-6)
    as_torch = refine(image, torch.from_numpy(labels)[None].int(), from_labels=c, return_probabilities=True)
    assert as_torch[0].shape == (1, 9, 13) and as_torch[1].shape == (1, 4, 9, 13)
    np.testing.assert_array_equal(as_torch[0][0].numpy(), expected)
    first = refine(image.transpose(2, 0, 1), labels, from_labels=c, channel_axis=0, return_probabilities=True)
    np.testing.assert_allclose(first[1], np.moveaxis(x, -1, 0), atol=1e-6)


def test_confidence_moves_a_label_map_from_no_information_to_the_map_itself():
    image, labels = photograph(20, 20), (probabilities(20, 20, labels=2).argmax(-1)).astype(np.uint8)
    with pytest.warns(UserWarning, match="no pixel changed, and none could"):
        assert (refine(image, labels, from_labels=0.999) == labels).all()
    changed = [(refine(image, labels, from_labels=c) != labels).mean() for c in (0.55, 0.7, 0.9)]
    assert changed[0] >= changed[1] >= changed[2]
    assert changed[0] > 0.1
    assert (refine(image, labels, from_labels=True) == refine(image, labels, from_labels=0.7)).all()
    assert (refine(image, labels > 0, from_labels=0.7) == refine(image, labels, from_labels=0.7)).all()


def test_pixels_without_a_label_are_filled_in():
    image = np.full((12, 12, 3), 40, np.uint8)
    image[:, 6:] = 200
    labels = np.full((12, 12), -1)
    labels[3, 2], labels[8, 9] = 0, 1
    found = refine(image, labels, from_labels=0.95, num_labels=2)
    assert (found[:, :6] == 0).all() and (found[:, 6:] == 1).all()


def test_number_of_labels_of_a_label_map():
    image, labels = photograph(9, 13), np.zeros((9, 13), np.int64)
    _, likely = refine(image, labels, from_labels=True, return_probabilities=True)
    assert likely.shape == (9, 13, 2)
    _, likely = refine(image, labels, from_labels=True, num_labels=5, return_probabilities=True)
    assert likely.shape == (9, 13, 5)


# --- grids --------------------------------------------------------------------------------------


def test_spacing_is_bandwidths_in_pixels():
    volume, p = photograph(4, 6, 7, channels=1)[..., 0], probabilities(4, 6, 7)
    in_mm = [Spatial(2.6, weight=1.5), Bilateral(10.2, 31.0, weight=3.0)]
    in_voxels = [
        Spatial((0.52, 2.6, 1.3), weight=1.5),
        Bilateral((2.04, 10.2, 5.1), 31.0, weight=3.0),
    ]
    expected = refine(volume, p, kernels=in_voxels)
    np.testing.assert_array_equal(refine(volume, p, kernels=in_mm, spacing=(5.0, 1.0, 2.0)), expected)
    assert (refine(volume, p, kernels=in_mm, spatial_dims=3) != expected).any()
    np.testing.assert_array_equal(
        refine(volume, p, kernels=in_mm, spacing=2.0, spatial_dims=3),
        refine(volume, p, spatial_dims=3),
    )


def test_time_is_an_axis_with_its_own_bandwidth():
    video, p = photograph(3, 6, 7), probabilities(3, 6, 7)
    # With next to no reach in time, frames are on their own: as a batch of images.
    alone = [Spatial((0.05, 1.3, 1.3), weight=1.5), Bilateral((1e-3, 5.1, 5.1), 31.0, weight=3.0)]
    exact = [alone[0], Bilateral((1e-3, 5.1, 5.1), 31.0, weight=3.0, method="exact")]
    frames = [KERNELS[0], Bilateral(5.1, 31.0, weight=3.0, method="exact")]
    np.testing.assert_array_equal(refine(video, p, kernels=exact), refine(video, p, kernels=frames))


def test_the_number_of_grid_axes_is_found_or_set():
    image, p = photograph(2, 6, 7), probabilities(2, 6, 7)

    def likely(*arrays, **settings):
        return np.asarray(refine(*arrays, return_probabilities=True, **settings)[1])

    as_batch, as_volume = likely(image, p, spatial_dims=2), likely(image, p, spatial_dims=3)
    assert abs(as_batch - as_volume).max() > 0.1
    assert (likely(image, p) == as_batch).all()
    torch_image, torch_p = (torch.from_numpy(np.moveaxis(a, -1, 0))[None] for a in (image, p))
    np.testing.assert_allclose(np.moveaxis(likely(torch_image, torch_p)[0], 0, -1), as_volume, atol=1e-6)
    per_axis = [KERNELS[0], Bilateral((5.1, 5.1, 5.1), 31.0, weight=3.0)]
    np.testing.assert_allclose(likely(image, p, kernels=per_axis), as_volume, atol=1e-6)


@pytest.mark.parametrize("side", ["scores", "image"])
def test_resize(side):
    image, p = photograph(24, 32), probabilities(6, 8)
    labels, likely = refine(image, p, resize=side, return_probabilities=True)
    if side == "scores":
        large = torch.nn.functional.interpolate(
            torch.from_numpy(p).permute(2, 0, 1)[None], size=(24, 32), mode="bilinear"
        )
        expected = refine(image, large[0].permute(1, 2, 0).numpy())
    else:
        small = image.reshape(6, 4, 8, 4, 3).mean((1, 3))
        expected = refine(small, p)
    np.testing.assert_array_equal(labels, expected)
    assert likely.shape == (*expected.shape, 3)
    # Where sizes agree nothing is resized.
    same = probabilities(24, 32)
    np.testing.assert_array_equal(refine(image, same, resize=side), refine(image, same))
