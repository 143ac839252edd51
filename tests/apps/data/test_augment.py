"""Flips, scales and crops keep image and labels together, and depend on seed, epoch and number alone."""

from __future__ import annotations

import layouts
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from fwcrf.apps.data import Augmentation, Augmented, Splits


def example(height=12, width=15):
    """An image whose red is its label, row by row, in patches wide enough to survive being halved."""
    labels = torch.arange(3 * 5).view(3, 5).repeat_interleave(height // 3, 0).repeat_interleave(width // 5, 1)
    return (labels * 10).to(torch.uint8).expand(3, -1, -1).clone(), labels


def random(seed=0):
    return np.random.default_rng(seed)


@given(st.integers(1, 40), st.integers(1, 40), st.floats(0.5, 2.0), st.integers(0, 1000))
def test_the_size_is_that_of_the_crop(height, width, scale, seed):
    augment = Augmentation((height, width), (scale, scale))
    image, labels = augment(*example(), random(seed))
    assert (image.shape, labels.shape, image.dtype) == ((3, height, width), (height, width), torch.uint8)
    size = round(12 * scale), round(15 * scale)
    inside = torch.zeros(height, width, dtype=torch.bool)
    inside[: size[0], : size[1]] = True
    assert torch.equal(labels == 255, ~inside)
    assert (image[:, ~inside] == 128).all()


@given(st.integers(0, 1000))
def test_image_and_labels_move_together(seed):
    image, labels = Augmentation((20, 20), scale=(1, 1))(*example(), random(seed))
    valid = labels != 255
    assert torch.equal(image[0][valid].long(), labels[valid] * 10)


def test_scaled_labels_lie_where_the_scaled_image_has_them():
    image, labels = example(60, 50)
    for scale in (0.5, 0.7, 1.3, 2.0):
        big, at = Augmentation((30, 25), (scale, scale), flip=0)(image, labels, random(1))
        # Bilinear interpolation mixes only along the borders of the patches.
        same = (big[0].long() - at * 10).abs() <= 5
        assert same[at != 255].double().mean() > 0.75


def test_half_are_flipped():
    image, labels = example()
    augment = Augmentation((12, 15), (1, 1))
    flipped = [torch.equal(augment(image, labels, random(seed))[1], labels.flip(-1)) for seed in range(400)]
    assert 160 < sum(flipped) < 240


def test_every_corner_is_reached():
    augment = Augmentation((2, 2), (1, 1), flip=0)
    image, labels = torch.zeros(3, 4, 3, dtype=torch.uint8), torch.arange(12).view(4, 3)
    first = {augment(image, labels, random(seed))[1][0, 0].item() for seed in range(200)}
    assert first == {0, 1, 3, 4, 6, 7}


def test_scales_fill_their_range():
    augment = Augmentation((40, 40), (0.5, 2.0))
    heights = [(augment(*example(), random(s))[1] != 255).any(1).sum().item() for s in range(300)]
    assert min(heights) <= 7 and max(heights) >= 23
    assert np.mean(heights) == pytest.approx(12 * 1.25, abs=0.7)


@pytest.mark.parametrize("workers", [0, 2])
def test_epoch_and_number_decide(tmp_path, workers):
    dataset = Splits(layouts.splits(tmp_path), "train")
    augmented = Augmented(dataset, Augmentation((7, 8)), seed=3)
    keys = [(epoch, i) for epoch in (0, 1) for i in (2, 0, 1)]
    loaded = list(DataLoader(augmented, sampler=keys, batch_size=1, num_workers=workers))
    for key, (image, labels) in zip(keys, loaded, strict=True):
        expected = augmented[key]
        assert torch.equal(image[0], expected[0]) and torch.equal(labels[0], expected[1])
    assert not torch.equal(loaded[0][0], loaded[3][0])
    other = Augmented(dataset, Augmentation((7, 8)), seed=4)
    assert not torch.equal(other[0, 2][0], augmented[0, 2][0])
