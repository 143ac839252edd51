"""From files to labels: the same as refining what the files hold."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from scenes import scene

import fwcrf
from fwcrf.apps.batch.job import Reading, RefineJob, refine_files
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.files import FileError, read_labels, write_labels
from fwcrf.apps.files.settings import Settings
from fwcrf.kernels import Bilateral

IMAGE, P, TRUTH = scene(0)


@pytest.fixture
def files(tmp_path):
    Image.fromarray(IMAGE).save(tmp_path / "image.png")
    np.save(tmp_path / "p.npy", P)
    return tmp_path


def test_the_labels_of_refine(files):
    found = refine_files(files / "image.png", files / "p.npy", return_probabilities=True)
    labels, p = fwcrf.refine(IMAGE, P, return_probabilities=True)
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.probabilities, p)
    assert (labels == TRUTH).mean() > (P.argmax(-1) == TRUTH).mean()


def test_settings_are_heeded(files):
    kernel = {"kind": "bilateral", "xy": 20.0, "color": 30.0, "weight": 4.0}
    given = {"solver": {"name": "efw", "weight": 0.3}, "num_steps": 3, "kernels": [kernel]}
    settings = Settings.of({**given, "rounding": "bcd"})
    expected = fwcrf.refine(
        IMAGE, P, solver=fwcrf.solvers.get("efw", weight=0.3), num_steps=3,
        kernels=[Bilateral(20, 30, 4.0)], rounding="bcd",
    )  # fmt: skip
    np.testing.assert_array_equal(
        refine_files(files / "image.png", files / "p.npy", settings).labels, expected
    )


@pytest.mark.parametrize("form", ["logits", "first", "binary", "grey", "small", "corners"])
def test_forms_of_scores_and_images(files, form):
    image, scores, reading, expected = IMAGE, P, Reading(), {}
    if form == "logits":
        scores, reading, expected = np.log(P), Reading(kind="logits"), {"from_logits": True}
    elif form == "first":
        scores, reading = np.moveaxis(P, -1, 0), Reading(label_axis=0)
    elif form == "binary":
        scores = P[..., 1]
    elif form == "grey":
        image = IMAGE[..., 0]
    elif form == "small":
        scores, reading, expected = P[::4, ::4], Reading(resize="scores"), {"resize": "scores"}
    elif form == "corners":
        expected = {"resize": "scores", "align": "corners"}
        scores, reading = P[::3, ::7], Reading(**expected)
    Image.fromarray(image).save(files / "image.png")
    np.save(files / "p.npy", scores)
    labels = refine_files(files / "image.png", files / "p.npy", reading=reading).labels
    given = np.moveaxis(scores, 0, -1) if form == "first" else scores
    np.testing.assert_array_equal(labels, fwcrf.refine(image, given, spatial_dims=2, **expected))
    np.save(files / "image.npy", image)
    if form != "binary":
        np.testing.assert_array_equal(
            refine_files(files / "image.npy", files / "p.npy", reading=reading).labels, labels
        )


def test_label_maps_with_gaps(files):
    labels = TRUTH.copy()
    labels[::3] = 255
    write_labels(files / "labels.png", labels)
    found = refine_files(files / "image.png", files / "labels.png", reading=Reading(confidence=0.9)).labels
    gaps = np.where(labels == 255, -1, labels.astype(int))
    np.testing.assert_array_equal(found, fwcrf.refine(IMAGE, gaps, from_labels=0.9))
    assert (found == TRUTH).mean() > 0.97


def test_masks(files):
    write_labels(files / "mask.png", 255 * (TRUTH == 1))
    with pytest.raises(FileError, match=r"no labels other than 0 and 255, .* --from mask"):
        refine_files(files / "image.png", files / "mask.png")
    found = refine_files(files / "image.png", files / "mask.png", reading=Reading(kind="mask")).labels
    np.testing.assert_array_equal(found, fwcrf.refine(IMAGE, (TRUTH == 1).astype(int), from_labels=True))


def test_volumes_with_spacing(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    rng = np.random.default_rng(0)
    volume = rng.integers(0, 255, (6, 7, 8), dtype=np.uint8)
    p = rng.dirichlet(np.ones(2), (6, 7, 8)).astype(np.float32)
    affine = np.diag([1.0, 2.0, 3.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(volume, affine), tmp_path / "v.nii.gz")
    nibabel.save(nibabel.Nifti1Image(p, affine), tmp_path / "p.nii.gz")
    paper = Settings.of({"preset": "paper"})  # in noise, a narrower colour bandwidth has no neighbours
    found = refine_files(tmp_path / "v.nii.gz", tmp_path / "p.nii.gz", paper)
    expected = fwcrf.refine(volume, p, spatial_dims=3, spacing=(1.0, 2.0, 3.0), preset="paper")
    np.testing.assert_array_equal(found.labels, expected)
    assert not np.array_equal(found.labels, fwcrf.refine(volume, p, spatial_dims=3, preset="paper"))
    job = RefineJob(str(tmp_path), settings=paper)
    staged = job(Item(str(tmp_path / "v.nii.gz"), str(tmp_path / "p.nii.gz"), "out.nii.gz"))
    (tmp_path / staged.temporary).rename(tmp_path / "out.nii.gz")
    np.testing.assert_array_equal(read_labels(tmp_path / "out.nii.gz"), expected)
    np.testing.assert_array_equal(nibabel.load(tmp_path / "out.nii.gz").affine, affine)


def test_a_job_says_what_was_warned_of(files, num_threads):
    num_threads(1)
    np.save(files / "p.npy", P * 2)
    staged = RefineJob(str(files))(Item(str(files / "image.png"), str(files / "p.npy"), "out.png"))
    assert any("sums to" in message for message in staged.warnings)


def test_a_job_does_the_same_on_any_number_of_threads(files, num_threads):
    item = Item(str(files / "image.png"), str(files / "p.npy"), "out.png")
    found = set()
    for count in (1, 2):
        num_threads(count)
        found.add(RefineJob(str(files))(item).sha256)
        assert torch.get_num_threads() == 1
    assert len(found) == 1


def test_a_key_changes_with_whatever_changes_the_output(files):
    item = Item(str(files / "image.png"), str(files / "p.npy"), "out.png")
    jobs = [RefineJob("a"), RefineJob("a", Settings(num_steps=1)), RefineJob("a", reading=Reading(void=0))]
    keys = [job.key(item) for job in jobs]
    assert keys[0] == RefineJob("b").key(item)
    for name in ("p.npy", "image.png"):
        status = (files / name).stat()
        (files / name).write_bytes((files / name).read_bytes()[:-1] + b"!")
        os.utime(files / name, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (files / name).stat().st_size == status.st_size
        keys.append(jobs[0].key(item))
    assert len(set(keys)) == 5


def test_sizes_that_differ(files):
    np.save(files / "p.npy", P[::2, ::2])
    with pytest.raises(ValueError, match="resize"):
        refine_files(files / "image.png", files / "p.npy")
