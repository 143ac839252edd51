"""Reports and label maps in files, and test-time augmentation."""

from __future__ import annotations

import json

import layouts
import numpy as np
import pytest
import torch
from PIL import Image
from shared_data import ROOT, needs
from torch import nn

from fwcrf.apps.data import Splits, scores
from fwcrf.apps.data.classes import CAMVID
from fwcrf.apps.evaluation import Measures, Views, evaluate, predict, probabilities
from fwcrf.apps.files import read_labels


@pytest.fixture
def dataset(tmp_path):
    return Splits(layouts.splits(tmp_path / "data", size=(24, 31)), "val")


def model(image):
    weight = torch.tensor([[1.0, -1, 0], [0, 1, -1], [-1, 0, 1]]) / 40
    return torch.einsum("lc,bchw->blhw", weight, image.float()).log_softmax(1)


def test_report_and_pictures(dataset, tmp_path):
    measures = Measures({"ends": (0, 2)}, trimaps=(1, 3), boundary=True)
    report = evaluate(predict(model, dataset), dataset.classes, measures, tmp_path / "out", {"crf": None})
    stored = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert stored == {**report, "settings": {"crf": None}}
    assert report["images"] == 4 and list(report["iou"]) == ["sky", "road", "car"]
    assert report["mean_iou"] == pytest.approx(np.mean(list(report["iou"].values())))
    assert report["mean_iou_ends"] == pytest.approx((report["iou"]["sky"] + report["iou"]["car"]) / 2)
    assert set(report["trimap_mean_iou"]) == {"1", "3"} and 0 < report["boundary_f"] <= 1
    matrix = np.zeros((3, 3), int)
    for index, name in enumerate(dataset.names):
        found = read_labels(tmp_path / "out" / "labels" / f"{name}.png")
        np.add.at(matrix, (dataset[index][1].numpy(), found), 1)
    assert report["confusion"] == matrix.tolist()
    assert sorted(path.name for path in (tmp_path / "out" / "labels").iterdir()) == [
        f"{i}.png" for i in range(4)
    ]


def test_pictures_have_the_classes_colours(tmp_path):
    labels = torch.tensor([[0, 10], [5, 3]])
    evaluate([("street", labels, labels)], CAMVID, output=tmp_path)
    with Image.open(tmp_path / "labels" / "street.png") as opened:
        assert opened.mode == "P"
        assert np.asarray(opened.convert("RGB"))[0, 1].tolist() == [0, 128, 192]


def test_classes_that_do_not_occur_are_null(tmp_path):
    labels = torch.zeros(2, 2).long()
    report = evaluate([("a", labels, labels)], CAMVID, Measures(boundary=True), tmp_path)
    assert report["iou"]["sky"] == 1 and report["iou"]["car"] is None and report["boundary_f"] is None
    assert "NaN" not in (tmp_path / "scores.json").read_text()


def test_views_of_a_model_that_looks_at_single_pixels():
    """Flips change nothing, and neither do scales where the image is flat."""
    image = torch.randint(0, 256, (1, 3, 6, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    plain = model(image).exp()
    torch.testing.assert_close(probabilities(model, image, Views(flip=True)), plain)
    flat = image[..., :1, :1].expand(1, 3, 8, 8)
    seen = probabilities(model, flat, Views((0.5, 1.0, 1.75), flip=True))
    torch.testing.assert_close(seen, model(flat).exp())


def test_the_mirrored_view_is_mirrored_back():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 2, 3, padding=1)
    image = torch.rand(1, 3, 5, 7)

    def directed(x):
        return conv(x).log_softmax(1)

    expected = (directed(image).exp() + directed(image.flip(-1)).exp().flip(-1)) / 2
    torch.testing.assert_close(probabilities(directed, image, Views(flip=True)), expected)
    sizes = []
    probabilities(lambda x: sizes.append(tuple(x.shape[-2:])) or directed(x), image, Views((0.5, 2.0)))
    assert sizes == [(2, 4), (10, 14)]


def test_views_need_a_scale():
    with pytest.raises(ValueError, match=r"scales=\(0,\); expected positive"):
        Views((0,))


@pytest.mark.data
@needs("camvid")
def test_camvid_scores_as_its_authors_measured():
    """24 images with these 12 among them were measured at 53.85 and 86.72."""
    scored = scores.espnet(ROOT / "camvid")
    found = ((name, scored[i][2].argmax(0), scored[i][1]) for i, name in enumerate(scored.names))
    report = evaluate(found, scored.classes)
    assert report["mean_iou"] == pytest.approx(0.54, abs=0.03)
    assert report["accuracy"] == pytest.approx(0.867, abs=0.02)
