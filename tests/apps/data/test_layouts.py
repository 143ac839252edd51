"""The real data sets' folders are read as they are laid out."""

from __future__ import annotations

import layouts
import numpy as np
import pytest
import torch
from PIL import Image

from fwcrf.apps.data import VOC, CamVid, Cityscapes, Folder, Splits
from fwcrf.apps.files import FileError


@pytest.mark.parametrize("below", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_voc(tmp_path, below):
    root = layouts.voc(tmp_path) / below
    assert VOC(root, "train").names == ["2007_000032"]
    assert VOC(root, "trainval").names == ["2007_000032", "2007_000033"]
    dataset = VOC(root, "val")
    image, labels = dataset[0]
    assert (image.shape, image.dtype, labels.dtype) == ((3, *layouts.SIZE), torch.uint8, torch.int64)
    assert labels[0].unique().tolist() == [255] and labels[1:].unique().tolist() == [16]
    assert (len(dataset.classes), dataset.classes.names[16]) == (21, "pottedplant")


def test_voc_with_the_masks_of_sbd(tmp_path):
    root = layouts.voc(tmp_path)
    dataset = VOC(root, "trainaug")
    assert dataset.names == ["2007_000032", "2008_000002", "2011_000003"]
    assert dataset[1][1].unique().tolist() == [2]
    lists = root / "VOCdevkit" / "VOC2012" / "ImageSets" / "Segmentation"
    layouts.lines(
        lists / "train_aug.txt", "/JPEGImages/2011_000003.jpg /SegmentationClassAug/2011_000003.png"
    )
    assert VOC(root, "trainaug").names == ["2011_000003"]


def test_cityscapes(tmp_path):
    dataset = Cityscapes(layouts.cityscapes(tmp_path), "train")
    assert dataset.names == ["aachen_000000_000019", "zurich_000001_000019"]
    image, labels = dataset[0]
    stored = np.arange(image[0].numel()).reshape(layouts.SIZE) % 34
    assert labels[stored == 7].unique().tolist() == [0]
    assert labels[stored == 33].unique().tolist() == [18]
    assert labels[stored == 24].unique().tolist() == [dataset.classes.names.index("person")]
    assert labels[stored == 29].unique().tolist() == [255]
    assert sorted(labels.unique().tolist()) == [*range(19), 255]
    assert len(Cityscapes(tmp_path, "val")) == 1
    coarse = Cityscapes(tmp_path, "train_extra", labels="gtCoarse")
    assert coarse[0][1].unique().tolist() == [0]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_camvid(tmp_path, split):
    dataset = CamVid(layouts.camvid(tmp_path), split)
    assert dataset[0][1].unique().tolist() == list(range(12))
    assert (len(dataset), len(dataset.classes), dataset.classes.ignore_index) == (1, 11, 11)


def test_a_folder_of_ones_own(tmp_path):
    layouts.picture(tmp_path / "images" / "a.jpg", 0)
    layouts.picture(tmp_path / "images" / "b.PNG", 1)
    layouts.picture(tmp_path / "images" / "without.png", 1)
    for name in "ab":
        layouts.mask(tmp_path / "masks" / f"{name}.png", 1)
    dataset = Folder(tmp_path / "images", tmp_path / "masks", ["no", "yes"])
    assert dataset.names == ["a", "b"] and dataset[1][1].unique().tolist() == [1]
    with pytest.raises(FileError, match=r"a.png has label 1; expected 0 to 0, or 9 for ignored pixels"):
        Folder(tmp_path / "images", tmp_path / "masks", 1, ignore_index=9)[0]
    with pytest.raises(FileError, match=r"no image in .* \(3 found\) has a mask"):
        Folder(tmp_path / "images", tmp_path, 2)


def test_splits(tmp_path):
    dataset = Splits(layouts.splits(tmp_path), "val")
    assert dataset.names == ["0", "1", "2", "3"] and dataset.classes.names == ("sky", "road", "car")
    (tmp_path / "val" / "labels" / "2.png").unlink()
    with pytest.raises(FileError, match=r"1 of 8 files are missing, the first .*2.png"):
        Splits(tmp_path, "val")


def test_grey_images_have_three_channels(tmp_path):
    values = layouts.mask(tmp_path / "images" / "a.png", 77)
    layouts.mask(tmp_path / "masks" / "a.png", 0)
    image, _ = Folder(tmp_path / "images", tmp_path / "masks", 2)[0]
    assert torch.equal(image, torch.from_numpy(values).expand(3, -1, -1))


def test_a_mask_of_another_size_is_refused(tmp_path):
    layouts.picture(tmp_path / "images" / "a.png", 0, size=(5, 5))
    layouts.mask(tmp_path / "masks" / "a.png", 0)
    with pytest.raises(FileError, match=r"\(5, 5\) pixels and .*a.png \(9, 12\)"):
        Folder(tmp_path / "images", tmp_path / "masks", 2)[0]


@pytest.mark.parametrize(("make", "match"), [
    (lambda root: VOC(root / "nowhere"), "no JPEGImages; expected the folder VOC2012"),
    (lambda root: VOC(layouts.voc(root), "test"), "no list of 'test' .* one of train, trainval, val"),
    (lambda root: Cityscapes(root), "no CITY/\\*_leftImg8bit.png"),
    (lambda root: CamVid(root), "train.txt cannot be read"),
    (lambda root: Splits(root), "train.txt cannot be read"),
])  # fmt: skip
def test_what_is_not_there_is_named(tmp_path, make, match):
    with pytest.raises(FileError, match=match):
        make(tmp_path)


def test_colours_of_a_jpeg_are_those_of_pillow(tmp_path):
    dataset = VOC(layouts.voc(tmp_path), "train")
    with Image.open(dataset.pairs[0].image) as opened:
        assert np.array_equal(dataset[0][0].permute(1, 2, 0).numpy(), np.asarray(opened))
