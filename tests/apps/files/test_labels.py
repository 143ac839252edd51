import numpy as np
import pytest
from PIL import Image

from fwcrf.apps.files import FileError, read_labels, read_scores, write_labels
from fwcrf.apps.files.palette import voc

LABELS = np.random.default_rng(0).integers(0, 21, (6, 5))


@pytest.mark.parametrize("name", ["a.png", "a.npy", "a.npz", "a.tif"])
@pytest.mark.parametrize("greatest", [20, 255, 256, 65535, 65536, 1 << 40])
def test_labels_come_back_or_are_refused(tmp_path, name, greatest):
    labels = LABELS.copy()
    labels[3, 2] = greatest
    most = {"a.png": 255, "a.tif": 65535}.get(name, 1 << 62)
    if greatest > most:
        with pytest.raises(FileError, match=f"labels up to {most}, .npy any shape and label"):
            write_labels(tmp_path / name, labels)
        assert not any(tmp_path.iterdir())
    else:
        write_labels(tmp_path / name, labels)
        np.testing.assert_array_equal(read_labels(tmp_path / name), labels)


def test_volumes_and_negative_labels(tmp_path):
    volume = np.stack([LABELS, LABELS - 1])
    write_labels(tmp_path / "a.npy", volume)
    np.testing.assert_array_equal(read_labels(tmp_path / "a.npy"), volume)
    with pytest.raises(FileError, match="takes two axes"):
        write_labels(tmp_path / "a.png", volume)
    with pytest.raises(FileError, match="NIfTI takes three axes"):
        write_labels(tmp_path / "a.nii", LABELS)
    with pytest.raises(FileError, match="at least one pixel"):
        write_labels(tmp_path / "a.npy", LABELS[:0])


@pytest.mark.parametrize("name", ["a.png", "a.npy", "a.npz", "a.tif"])
def test_the_same_labels_give_the_same_bytes(tmp_path, name):
    write_labels(tmp_path / name, LABELS)
    first = (tmp_path / name).read_bytes()
    write_labels(tmp_path / name, np.asfortranarray(LABELS.astype(np.int32)))
    assert (tmp_path / name).read_bytes() == first


def test_png_in_the_style_of_voc(tmp_path):
    write_labels(tmp_path / "a.png", LABELS)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.mode == "P"
        np.testing.assert_array_equal(np.asarray(picture), LABELS)
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), voc()[LABELS])


def test_names_for_labels(tmp_path):
    with pytest.raises(FileError, match="JPEG would change them"):
        write_labels(tmp_path / "a.jpg", LABELS)
    with pytest.raises(FileError, match=r"labels are written as .png, .npy"):
        write_labels(tmp_path / "a.gif", LABELS)
    assert not any(tmp_path.iterdir())


def test_whole_numbers_in_floating_point_are_labels(tmp_path):
    np.save(tmp_path / "a.npy", LABELS.astype(np.float32))
    np.testing.assert_array_equal(read_labels(tmp_path / "a.npy"), LABELS)
    np.save(tmp_path / "b.npy", LABELS + 0.5)
    with pytest.raises(FileError, match="expected a label map, whole numbers"):
        read_labels(tmp_path / "b.npy")


def test_scores_say_what_they_are(tmp_path):
    p = np.random.default_rng(0).dirichlet(np.ones(4), (6, 5)).astype(np.float32)
    np.save(tmp_path / "p.npy", p)
    np.save(tmp_path / "first.npy", np.moveaxis(p, -1, 0))
    np.save(tmp_path / "labels.npy", LABELS)
    np.savez(tmp_path / "logits.npz", logits=np.log(p), image_hw=np.array([6, 5]))
    write_labels(tmp_path / "labels.png", LABELS)
    for name, options, kind, values in (
        ("p.npy", {}, "probabilities", p),
        ("p.npy", {"kind": "logits"}, "logits", p),
        ("first.npy", {"label_axis": 0}, "probabilities", p),
        ("logits.npz", {}, "logits", np.log(p)),
        ("logits.npz", {"kind": "probabilities"}, "probabilities", np.log(p)),
        ("labels.npy", {}, "labels", LABELS),
        ("labels.png", {}, "labels", LABELS),
        ("logits.npz", {"key": "image_hw"}, "labels", [6, 5]),
        ("labels.png", {"kind": "mask"}, "labels", LABELS > 0),
    ):
        scores = read_scores(tmp_path / name, **options)
        assert scores.kind == kind
        np.testing.assert_array_equal(scores.values, values)
    with pytest.raises(FileError, match="is a label map; expected logits"):
        read_scores(tmp_path / "labels.png", kind="logits")
    with pytest.raises(FileError, match="expected an axis from -3 to 2"):
        read_scores(tmp_path / "p.npy", label_axis=3)


@pytest.mark.parametrize("value", [1e19, -1e19, float("inf")])
def test_floats_that_no_integer_holds_are_refused(tmp_path, value):
    np.save(tmp_path / "a.npy", np.array([[0.0, value]]))
    with pytest.raises(FileError, match=r"a\.npy has values from 2\^63 on; expected a label map"):
        read_labels(tmp_path / "a.npy")
