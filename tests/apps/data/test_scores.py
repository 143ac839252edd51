"""Logits from files, at the size of the image."""

from __future__ import annotations

import layouts
import numpy as np
import pytest
import torch
from shared_data import ROOT, needs

from fwcrf.apps.data import scores
from fwcrf.apps.files import FileError


def test_a_grid_point_on_every_eighth_pixel(tmp_path):
    root = layouts.splits(tmp_path, size=(9, 12))
    grid = np.random.default_rng(0).normal(size=(3, 2, 3)).astype(np.float16)
    (root / "val" / "logits_deeplabv3").mkdir()
    np.savez(root / "val" / "logits_deeplabv3" / "2.npz", logits=grid, image_hw=(9, 12))
    scored = scores.deeplab(root)
    image, labels, logits = scored[0]
    assert (scored.names, len(scored)) == (["2"], 1)
    assert (image.shape, labels.shape, logits.shape) == ((3, 9, 12), (9, 12), (3, 9, 12))
    at_points = torch.from_numpy(grid).float()
    torch.testing.assert_close(logits[:, ::8, ::8], at_points[:, :, :2])
    torch.testing.assert_close(logits[:, 4, 0], at_points[:, :, 0].mean(1))
    torch.testing.assert_close(logits[:, 0, 10], 0.75 * at_points[:, 0, 1] + 0.25 * at_points[:, 0, 2])


def test_no_file_for_any_image(tmp_path):
    with pytest.raises(FileError, match=r"no NAME.npz for any of the 4 images"):
        scores.deeplab(layouts.splits(tmp_path))


def accuracy(scored, count):
    right = total = 0
    for number in range(count):
        _, labels, logits = scored[number]
        valid = labels != scored.classes.ignore_index
        right += (logits.argmax(0) == labels)[valid].sum().item()
        total += valid.sum().item()
    return right / total


@pytest.mark.data
@needs("voc2012")
def test_logits_of_voc_belong_to_their_images():
    scored = scores.deeplab(ROOT / "voc2012")
    assert len(scored) == 223
    assert accuracy(scored, 8) > 0.88  # 0.93 over all


@pytest.mark.data
@needs("camvid")
def test_logits_of_camvid_belong_to_their_images():
    scored = scores.espnet(ROOT / "camvid")
    assert len(scored) == 12 and scored[0][2].shape == (11, 360, 480)
    assert accuracy(scored, 12) == pytest.approx(0.87, abs=0.03)
