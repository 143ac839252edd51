import os
import warnings

import numpy as np
import pytest
from PIL import Image
from scenes import scene, write_scenes

import fwcrf
from fwcrf.apps.files import read_labels
from fwcrf.kernels import Bilateral, Spatial


@pytest.fixture
def scenes(tmp_path):
    return write_scenes(tmp_path / "scenes", 1)


def given(scenes, *more):
    return ("refine", scenes / "images/0.png", "--scores", scenes / "scores/0.npy", *more)


def test_labels_overlay_and_probabilities(scenes, tmp_path, fwcrf_command):
    image, p, truth = scene(0)
    out = tmp_path / "out.png"
    status, stdout, stderr = fwcrf_command(
        *given(scenes, "-o", out, "--overlay", "--probabilities", tmp_path / "p.npy")
    )
    assert (status, stdout) == (0, "")
    assert stderr == f"written: {out}, {tmp_path}/out-overlay.png, {tmp_path}/p.npy\n"
    labels, probabilities = fwcrf.refine(image, p, return_probabilities=True)
    np.testing.assert_array_equal(read_labels(out), labels)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), probabilities)
    drawn = np.asarray(Image.open(tmp_path / "out-overlay.png"))
    np.testing.assert_array_equal((drawn != image).any(-1), labels > 0)
    assert (labels == truth).mean() > 0.9 > (p.argmax(-1) == truth).mean()


def test_every_setting_reaches_the_solver(scenes, tmp_path, fwcrf_command):
    image, p, _ = scene(0)
    options = "--solver efw --lambda 0.4 --steps 3 --bilateral 20 25 2 --spatial 2 0.5 --compatibility 1.5"
    status, *_ = fwcrf_command(
        *given(scenes, "-o", tmp_path / "a.npy", "--rounding", "bcd", *options.split())
    )
    assert status == 0
    expected = fwcrf.refine(
        image, p, solver=fwcrf.solvers.get("efw", weight=0.4), num_steps=3, compatibility=1.5, rounding="bcd",
        kernels=[Bilateral(20, 25, 2.0), Spatial(2, 0.5)],
    )  # fmt: skip
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)


def test_bands_and_memory(tmp_path, fwcrf_command):
    image, p, _ = scene(0)
    wide = np.concatenate([image[..., ::-1], image[..., :1]], -1)
    np.save(tmp_path / "image.npy", wide)
    np.save(tmp_path / "p.npy", p)
    given = ("refine", tmp_path / "image.npy", "-s", tmp_path / "p.npy", "-o", tmp_path / "a.npy")
    kernels = "--bilateral", 2, 20, 2
    status, _, err = fwcrf_command(*given, *kernels, "--bands", "3,2,1", "--memory", "500kB")
    assert status == 0, err
    parts = []
    expected = fwcrf.refine(
        image, p, kernels=[Bilateral(2, 20, 2.0)], memory=500_000, progress=lambda k, n: parts.append(n)
    )
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    assert len(parts) > 1
    for flags, status, words in (
        (("--bands", "5,1"), 1, "has bands 1 to 4; expected some of them, not 5,1"),
        (("--bands", "0,1"), 2, "expected numbers from 1 on with commas"),
        (("--bands", "red"), 2, "expected numbers from 1 on with commas"),
        (("--memory", "much"), 2, "Invalid value for --memory: 'much' is not a size"),
        (("--memory", "1kB"), 1, "--memory 1000 is too little for tiles"),
    ):
        found, _, err = fwcrf_command(*given, *kernels, *flags)
        assert found == status and words in " ".join(err.replace("│", " ").split()), err


def test_settings_of_a_file_give_way_to_those_of_the_command(scenes, tmp_path, fwcrf_command):
    image, p, _ = scene(0)
    (tmp_path / "s.yaml").write_text("solver: mf\nnum_steps: 3\nkernels: [{kind: spatial, xy: 2}]\n")
    config = ("--config", tmp_path / "s.yaml")
    assert fwcrf_command(*given(scenes, "-o", tmp_path / "a.npy", *config))[0] == 0
    expected = fwcrf.refine(image, p, solver="mf", num_steps=3, kernels=[Spatial(2)])
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)
    more = ("--steps", 1, "--spatial", 3, 0, "--bilateral", 20, 25, 2)
    assert fwcrf_command(*given(scenes, "-o", tmp_path / "b.npy", *config, *more))[0] == 0
    expected = fwcrf.refine(image, p, solver="mf", num_steps=1, kernels=[Bilateral(20, 25, 2.0)])
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), expected)


def test_a_warning_is_a_sentence(scenes, tmp_path, fwcrf_command):
    np.save(scenes / "scores/0.npy", 2 * scene(0)[1])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, err = fwcrf_command(*given(scenes, "-o", tmp_path / "a.png"))
    assert status == 0
    assert err.startswith("fwcrf: probabilities sums to 2")
    assert err.endswith(f"\nwritten: {tmp_path}/a.png\n")
    assert len(err.splitlines()) == 2


@pytest.mark.parametrize("align", ["centers", "corners", "8,0", "8x10,0x-0.5"])
def test_scores_lie_on_the_image_as_align_says(scenes, tmp_path, fwcrf_command, align):
    image, p, _ = scene(0)
    small = p[::8, ::10]
    np.save(scenes / "scores/0.npy", small)
    options = ("-o", tmp_path / "a.npy", "--resize", "scores", "--align", align)
    align = {"8,0": (8, 0), "8x10,0x-0.5": ((8, 10), (0, -0.5))}.get(align, align)
    status, _, stderr = fwcrf_command(*given(scenes, *options))
    if align == (8, 0):  # 5 columns end at pixel 32 of 50
        assert status == 1 and "stride 8 and offset 0" in stderr and "0 to 49" in stderr
        return
    assert status == 0
    expected = fwcrf.refine(image, small, resize="scores", align=align)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), expected)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-o a.png --align middle", "'middle'; expected corners, centers, or STRIDE,OFFSET in pixels"),
        ("-o a.png --align 8", "'8'; expected corners, centers, or STRIDE,OFFSET"),
        ("-o a.jpg", "JPEG would change them"),
        ("-o a.txt", "labels are written as .png"),
        ("-o a.png --probabilities p.png", "probabilities are written as .npy, .npz, .tif, .nii or .nii.gz"),
        ("-o a.png --solver nope", "solver 'nope' is not known; expected one of mf, fw"),
        ("-o a.png --solver mf --lambda 2", "solver 'mf' has no setting 'weight'"),
        ("-o a.png --steps -1", "Invalid value for '--steps'"),
        ("-o a.png --limit much", "'much' is not a size; expected a number and a unit, such as 500MB"),
        ("-o a.png --from guess", "guess"),
        ("-o scenes/scores/0.npy", "two files have the same name; expected different ones"),
        ("-o a.npy --probabilities a.npy", "two files have the same name; expected different ones"),
    ],
)
def test_bad_usage(scenes, tmp_path, fwcrf_command, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = fwcrf_command(*given(scenes, *options.split()))
    assert (status, out) == (2, "")
    assert said in " ".join(err.split())
    assert os.listdir(tmp_path) == ["scenes"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-o nowhere/a.png", "there is no folder nowhere; make it first"),
        pytest.param("-o /proc/a.png", "cannot be written", marks=pytest.mark.linux),
        ("-o a.png --limit 1kB", "would take 6 kB of memory; expected at most 1 kB"),
        ("-o a.png --config nowhere.yaml", "nowhere.yaml cannot be read"),
        ("-o a.png --from labels", "label"),
    ],
)
def test_failures(scenes, tmp_path, fwcrf_command, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    status, out, err = fwcrf_command(*given(scenes, *options.split()))
    assert (status, out) == (1, "")
    assert err.startswith("fwcrf: ")
    assert said in err
    assert os.listdir(tmp_path) == ["scenes"]


def test_what_cannot_be_written_is_said_before_anything_is_read(tmp_path, fwcrf_command):
    status, _, err = fwcrf_command(
        "refine", "nothing.png", "-s", "nothing.npy", "-o", tmp_path / "no" / "a.png"
    )
    assert status == 1
    assert "there is no folder" in err


def test_verbose_prints_the_path_that_ran(scenes, tmp_path, fwcrf_command):
    for solver, expected in (
        ("l2fw", "native engine: 5 steps"),
        ("anneal-fw", "generic path: the steps of Ann"),
    ):
        given_ = given(scenes, "-o", tmp_path / "a.npy", "--solver", solver, "--verbose")
        status, _, stderr = fwcrf_command(*given_)
        assert status == 0 and expected in stderr
    assert "engine" not in fwcrf_command(*given(scenes, "-o", tmp_path / "a.npy"))[2]
