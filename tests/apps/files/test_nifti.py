import gzip
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import fwcrf
from fwcrf.apps.batch.job import read_files
from fwcrf.apps.files import FileError, read_image, read_labels, read_scores, write_labels
from fwcrf.kernels import Bilateral

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


# As dcm2niix writes them: slices of another thickness, turned by 20 degrees about the first axis.
c, s = np.cos(0.35), np.sin(0.35)
OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = np.diag([-1, 1, 1]) @ [[1, 0, 0], [0, c, -s], [0, s, c]] @ np.diag([0.9, 0.9, 5.0])
OBLIQUE[:3, 3] = 90, -120, 35


def oblique(values, affine=OBLIQUE, kind=nibabel.Nifti1Image):
    """A volume with the codes, the units and the description that scanners leave."""
    volume = kind(values, affine)
    volume.header.set_xyzt_units("mm", "sec")
    volume.header.set_qform(affine, 1)
    volume.header.set_sform(affine, 1)
    volume.header["descrip"] = b"TE=4.2;Time=101112.5"
    volume.header["cal_max"] = 900
    volume.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"axial"))
    return volume


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
def test_results_keep_the_header_of_a_volume_made_from_dicom(tmp_path, fwcrf_command, kind):
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5, 6)).astype(np.float32)
    nibabel.save(oblique(VALUES, kind=kind), tmp_path / "t1.nii.gz")
    nibabel.save(oblique(p, kind=kind), tmp_path / "p.nii.gz")
    places = [tmp_path / name for name in ("t1.nii.gz", "p.nii.gz", "labels.nii.gz", "q.nii")]
    given = "refine", places[0], "--scores", places[1], "--bilateral", 5, 200, 2
    assert fwcrf_command(*given, "-o", places[2], "--probabilities", places[3])[0] == 0
    image, labels, q = (nibabel.load(places[k]) for k in (0, 2, 3))
    for found, dtype, shape in ((labels, np.uint8, (4, 5, 6)), (q, np.float32, (4, 5, 6, 3))):
        assert type(found) is kind and found.shape == shape and found.get_data_dtype() == dtype
        np.testing.assert_array_equal(found.affine, image.affine)
        for method in ("get_qform", "get_sform"):
            (a, code), (b, kept) = (getattr(one, method)(coded=True) for one in (image, found))
            assert code == kept == 1
            np.testing.assert_allclose(a, b, atol=1e-5)
        assert found.header.get_zooms()[:3] == image.header.get_zooms()
        assert found.header.get_xyzt_units() == ("mm", "sec")
        assert found.header["descrip"] == image.header["descrip"]
        assert found.header["cal_max"] == 0 and len(found.header.extensions) == 1
    kernels = [Bilateral(5, 200, 2)]
    spacing = (0.9, 0.9, 5.0)
    expected, likely = fwcrf.refine(VALUES, p, spacing=spacing, kernels=kernels, return_probabilities=True)
    np.testing.assert_array_equal(labels.get_fdata(), expected)
    np.testing.assert_allclose(q.get_fdata(), likely, atol=1e-6)
    assert fwcrf_command(*given, "-o", places[2], "--units", "pixels")[0] == 0
    other = fwcrf.refine(VALUES, p, spatial_dims=3, kernels=kernels)
    np.testing.assert_array_equal(nibabel.load(places[2]).get_fdata(), other)
    assert (other != expected).any()


@pytest.mark.parametrize("ending", [".nii", ".nii.gz"])
def test_probabilities_of_a_batch_keep_the_header_too(tmp_path, fwcrf_command, ending):
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5, 6)).astype(np.float32)
    for folder, values in (("images", VALUES), ("scores", p)):
        (tmp_path / folder).mkdir()
        nibabel.save(oblique(values), tmp_path / folder / "t1.nii.gz")
    given = tmp_path / "images", "--scores", tmp_path / "scores", "--bilateral", 5, 200, 2, "-j", 1
    more = "-o", tmp_path / "out", "--ending", ending, "--probabilities"
    status, _, err = fwcrf_command("batch", *given, *more)
    assert status == 0, err
    names = {path.name for path in (tmp_path / "out").glob("t1*")}
    assert names == {f"t1{ending}", f"t1-probabilities{ending}"}
    labels, likely = (nibabel.load(tmp_path / "out" / name) for name in sorted(names, key=len))
    assert likely.shape == (4, 5, 6, 3) and likely.header.get_xyzt_units() == ("mm", "sec")
    np.testing.assert_array_equal(likely.affine, nibabel.load(tmp_path / "images/t1.nii.gz").affine)
    np.testing.assert_array_equal(likely.get_fdata().argmax(-1), labels.get_fdata())


@pytest.mark.parametrize(("unit", "factor"), [("mm", 1), ("micron", 1000), ("meter", 0.001), ("unknown", 1)])
def test_spacing_is_in_millimetres_whatever_the_unit_of_the_file(tmp_path, unit, factor):
    volume = nibabel.Nifti1Image(VALUES, np.diag([0.5 * factor, 2 * factor, 3 * factor, 1]))
    volume.header.set_xyzt_units(unit)
    nibabel.save(volume, tmp_path / "a.nii")
    assert read_image(tmp_path / "a.nii").spacing == pytest.approx((0.5, 2, 3), rel=1e-6)


def moved(by, scale=(1, 1, 1)):
    """OBLIQUE, moved by some voxels, with larger voxels whose first one begins at the same corner."""
    change = np.diag([*scale, 1.0])
    change[:3, 3] = np.array(by) + (np.array(scale) - 1) / 2
    return OBLIQUE @ change


@pytest.mark.parametrize(
    ("affine", "message"),
    [
        (moved((0, 0, 2)), r"first voxel is voxel \[0.0, 0.0, 2.0\] of the image"),
        (moved((0.5, 0, 0)), "voxels away from .* expected the same place, or --resize scores"),
        (moved((3, 0, 0), (-1, 1, 1)), "turned or flipped against .* the axes are RAS and LAS"),
        (moved((0, 0, 0), (1, 1, 0.2)), "a voxel of it measures"),
    ],
)
def test_scores_that_lie_elsewhere_are_refused(tmp_path, fwcrf_command, affine, message):
    nibabel.save(oblique(VALUES), tmp_path / "t1.nii")
    nibabel.save(oblique(VALUES % 3, affine), tmp_path / "labels.nii")
    status, _, err = fwcrf_command(
        "refine", tmp_path / "t1.nii", "--scores", tmp_path / "labels.nii", "-o", tmp_path / "out.nii"
    )
    assert status == 1 and re.search(message, err)
    assert not (tmp_path / "out.nii").exists()


def test_coarse_scores_are_placed_by_both_affines(tmp_path, fwcrf_command):
    p = np.random.default_rng(0).dirichlet(np.ones(8), (2, 3, 6))
    nibabel.save(oblique(VALUES), tmp_path / "t1.nii")
    # Samples of 2 x 2 voxels; the last ones of the second axis reach beyond the volume.
    nibabel.save(oblique(p, moved((0, 0, 0), (2, 2, 1))), tmp_path / "p.nii")
    given = "refine", tmp_path / "t1.nii", "--scores", tmp_path / "p.nii", "-o", tmp_path / "out.nii"
    given += "--bilateral", 5, 200, 2
    status, _, err = fwcrf_command(*given, "--resize", "scores")
    assert status == 0, err
    expected = fwcrf.refine(
        VALUES,
        p,
        spacing=(0.9, 0.9, 5.0),
        resize="scores",
        align=((2, 2, 1), (0.5, 0.5, 0)),
        kernels=[Bilateral(5, 200, 2)],
    )
    np.testing.assert_array_equal(read_labels(tmp_path / "out.nii"), expected)


@pytest.mark.parametrize("change", [-1, 1])
def test_scores_of_the_same_resolution_with_a_slice_less_or_more_stay_in_place(
    tmp_path, fwcrf_command, change
):
    p = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5, 6 + change))
    nibabel.save(oblique(VALUES), tmp_path / "t1.nii")
    nibabel.save(oblique(p), tmp_path / "p.nii")
    given = "refine", tmp_path / "t1.nii", "--scores", tmp_path / "p.nii", "-o", tmp_path / "out.nii"
    assert fwcrf_command(*given, "--bilateral", 5, 200, 2, "--resize", "scores")[0] == 0
    expected = fwcrf.refine(
        VALUES, p, spacing=(0.9, 0.9, 5.0), resize="scores", align=(1, 0), kernels=[Bilateral(5, 200, 2)]
    )
    np.testing.assert_array_equal(read_labels(tmp_path / "out.nii"), expected)


def test_scores_without_a_place_are_taken_with_a_warning(tmp_path):
    nibabel.save(oblique(VALUES), tmp_path / "t1.nii")
    nibabel.save(nibabel.Nifti1Image(VALUES % 3, np.eye(4)), tmp_path / "labels.nii")
    with pytest.warns(UserWarning, match=r"labels.nii has no place in space, an identity as its affine"):
        read_files(tmp_path / "t1.nii", tmp_path / "labels.nii")
