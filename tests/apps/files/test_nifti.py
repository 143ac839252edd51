import gzip

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from fwcrf.apps.files import FileError, read_image, read_labels, read_scores, write_labels

nibabel = pytest.importorskip("nibabel")

VALUES = np.random.default_rng(0).integers(0, 1000, (4, 5, 6), dtype=np.int16)
AFFINE = np.array([[0.5, 0, 0, 9], [0, 2, 0, 8], [0, 0, 3, 7], [0, 0, 0, 1.0]])


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_values_spacing_and_affine(tmp_path, name, kind):
    nibabel.save(kind(VALUES, AFFINE), tmp_path / name)
    image = read_image(tmp_path / name)
    np.testing.assert_array_equal(image.values, VALUES)
    assert image.spacing == (0.5, 2.0, 3.0)
    np.testing.assert_array_equal(image.affine, AFFINE)


def test_channels_and_scores_on_the_fourth_axis(tmp_path):
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5, 6))
    nibabel.save(nibabel.Nifti1Image(p, AFFINE), tmp_path / "a.nii.gz")
    assert read_image(tmp_path / "a.nii.gz").values.shape == (4, 5, 6, 3)
    np.testing.assert_array_equal(read_scores(tmp_path / "a.nii.gz").values, p)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_labels_keep_their_place_in_space(tmp_path, name):
    labels = VALUES % 7
    write_labels(tmp_path / name, labels, affine=AFFINE)
    np.testing.assert_array_equal(read_labels(tmp_path / name), labels)
    np.testing.assert_array_equal(nibabel.load(tmp_path / name).affine, AFFINE)
    first = (tmp_path / name).read_bytes()
    write_labels(tmp_path / name, labels, affine=AFFINE)
    assert (tmp_path / name).read_bytes() == first


def test_the_size_is_settled_before_decoding(tmp_path):
    """A header that announces terabytes of zeros, and one whose values start after a gigabyte."""
    header = nibabel.Nifti1Header()
    header.set_data_shape((32767, 32767, 2048))
    with gzip.open(tmp_path / "a.nii.gz", "wb") as file:
        file.write(header.binaryblock.replace(b"ni1", b"n+1") + bytes(1000))
    with pytest.raises(FileError, match="GB of memory; expected at most"):
        read_image(tmp_path / "a.nii.gz")
    header.set_data_shape((2, 2, 2))
    header["vox_offset"] = 1e9
    with gzip.open(tmp_path / "b.nii.gz", "wb") as file:
        file.write(header.binaryblock.replace(b"ni1", b"n+1") + bytes(1000))
    with pytest.raises(FileError, match="says its values start at byte 1000000000"):
        read_image(tmp_path / "b.nii.gz")


def test_what_is_no_volume(tmp_path):
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(b"hello" * 200))
    with pytest.raises(FileError, match="does not start with a NIfTI header"):
        read_image(tmp_path / "a.nii.gz")
    nibabel.save(nibabel.Nifti1Image(VALUES[0], np.eye(4)), tmp_path / "b.nii")
    with pytest.raises(FileError, match="expected three axes, and optionally channels"):
        read_image(tmp_path / "b.nii")


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@hypothesis.given(st.data())
def test_a_damaged_file_is_answered_with_a_sentence(tmp_path_factory, name, data):
    path = tmp_path_factory.mktemp("damaged") / name
    nibabel.save(nibabel.Nifti1Image(VALUES, AFFINE), path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 8))):
            content[data.draw(st.integers(0, min(len(content), 400) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        image = read_image(path, limit=10**6)
    except FileError as error:
        assert str(path) in str(error)
    else:
        assert image.values.nbytes <= 10**6
