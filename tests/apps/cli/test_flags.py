"""Errors and warnings of commands name flags, not arguments of Python functions."""

import inspect
import re
import warnings

import numpy as np
import pytest
from PIL import Image

import fwcrf
from fwcrf.apps.cli.flags import in_flags

RNG = np.random.default_rng(0)
IMAGE = RNG.integers(0, 256, (40, 56, 3), dtype=np.uint8)
P = RNG.dirichlet(np.ones(3), (40, 56)).astype(np.float32)
LOGITS = RNG.normal(size=(5, 7, 21)).astype(np.float32)
LABELS = P.argmax(-1).astype(np.uint8)
DEEP = IMAGE.astype(np.uint16) * 257

# Image, scores, flags, exit status, and the words that are said.
CASES = {
    "logits": (IMAGE, np.log(P), "", 1, "If these are logits, pass --from logits."),
    "one logit": (IMAGE, np.log(P[..., 0]), "", 1, "If these are logits, pass --from logits."),
    "sizes": (IMAGE, P[::2, ::2], "", 1, "Pass --resize scores to bring the scores to the size of the image"),
    "labels first": (IMAGE, P.transpose(2, 0, 1), "", 1, "seem to be at axis 0: pass --label-axis 0."),
    "coarse labels first": (
        IMAGE,
        LOGITS.transpose(2, 0, 1),
        "--from logits --resize scores",
        1,
        "(21, 5, 7): 7 labels on a grid of 21 x 5",
    ),
    "coarse labels first, remedy": (
        IMAGE,
        LOGITS.transpose(2, 0, 1),
        "--from logits --resize scores",
        1,
        "seem to be at axis 0: pass --label-axis 0.",
    ),
    "coarse labels last": (
        IMAGE,
        LOGITS,
        "--from logits --resize scores --label-axis 0",
        1,
        "seem to be at axis 2: pass --label-axis 2.",
    ),
    "labels first, of 3:2": (
        IMAGE[:32, :48],
        RNG.normal(size=(21, 16, 24)).astype(np.float32),
        "--from logits --resize scores",
        1,
        "pass --label-axis 0. If they are not, pass --labels 24.",
    ),
    "a cube": (
        IMAGE[:40, :40],
        RNG.normal(size=(5, 5, 5)).astype(np.float32),
        "--from logits --resize scores",
        0,
        "axis 0 or 1. If they are there, pass --label-axis 0 or --label-axis 1; if not, pass --label-axis 2.",
    ),
    "number of labels": (IMAGE, P, "--labels 5", 1, "3 labels, and --labels 5; expected as many."),
    "align alone": (IMAGE, P, "--align corners", 1, "--align corners without --resize; expected --resize sc"),
    "stride alone": (IMAGE, P, "--align 8,0", 1, "--align 8.0,0.0 without --resize"),
    "stride": (IMAGE, LOGITS, "--from logits --resize scores --align 4,0", 1, "--align has stride 4 and off"),
    "void": (IMAGE, np.where(LABELS == 1, 200, LABELS), "--labels 3", 1, "pass --void 200. If it is the"),
    "mask": (
        IMAGE,
        np.where(LABELS == 1, 200, 0),
        "--labels 2",
        1,
        "foreground of a mask, pass --from mask.",
    ),
    "so many": (IMAGE, np.where(LABELS == 1, 200, 0), "--labels 2", 1, "so many labels, pass --labels 201."),
    "mask of 255": (IMAGE, np.where(LABELS == 1, 255, 0), "", 1, "If it is a mask, use --from mask."),
    "label map as scores": (IMAGE, LABELS, "--from probabilities", 1, "For a label map pass --from labels."),
    "scores as labels": (
        IMAGE,
        P[..., 0],
        "--from labels",
        1,
        "If they are probabilities, use --from probabilities.",
    ),
    "nan": (IMAGE, P * np.nan, "", 1, "can be left out in Python: fwcrf.refine has ignore=."),
    "lambda 0": (IMAGE, P, "--lambda 0", 2, "for --lambda: 0.0; expected a positive number"),
    "balance": (IMAGE, P, "--balance 3", 2, "for --balance: balance is 3.0; expected a number from 0 to 1"),
    "colour": (IMAGE, P, "--bilateral 80 -1 1", 2, "for --bilateral: a bilateral kernel has color -1.0;"),
    "not a number": (IMAGE, P, "--spatial 3 nan", 2, "for --spatial: nan; expected finite numbers."),
    "negative weight": (IMAGE, P, "--spatial 3 -1", 2, "for --spatial: weight -1; expected 0 or more."),
    "no kernel": (IMAGE, P, "--spatial 3 0", 2, "for --spatial: weight 0, and no other kernel is left;"),
    "solver": (IMAGE, P, "--solver nope", 2, "for --solver: solver 'nope' is not known; expected one of mf,"),
    "solver of graphs": (
        IMAGE,
        P,
        "--solver lp-trw",
        2,
        "--solver: 'lp-trw' is for sparse graphs, with `fwc",
    ),
    "label axis": (
        IMAGE,
        P,
        "--label-axis 5",
        1,
        "with --label-axis 5; expected an axis from -3 to 2",
    ),
    "penalty": (IMAGE, P, "--compatibility -1", 2, "--compatibility"),
    "no stride": (
        IMAGE,
        LOGITS,
        "--from logits --resize scores --align 0,0",
        1,
        "--align 0.0; expected a pos",
    ),
    "size": (IMAGE, P, "--limit 3x", 2, "for --limit: '3x' is not a size"),
    "lambda": (IMAGE, P, "--solver mf --lambda 2", 2, "solver 'mf' has no setting 'weight' (--lambda)"),
    "sums": (
        IMAGE,
        2 * P,
        "",
        0,
        "If these are logits, pass --from logits; if the labels are on another axis, ",
    ),
    "sums, remedy": (IMAGE, 2 * P, "", 0, "if the labels are on another axis, pass --label-axis."),
    "probabilities": (IMAGE, P, "--from logits", 0, "Expected logits: pass probabilities with --from probab"),
    "confidence": (IMAGE, LABELS, "--confidence 0.99", 0, "none could: --from labels --confidence 0.99 puts"),
    "depth": (
        DEEP,
        P,
        "",
        0,
        "pass a bandwidth such as that of the default: --preset default --bilateral 80 1.54e+03 2.4.",
    ),
    "zeros": (
        IMAGE,
        np.where(P < 0.1, 0, P),
        "",
        0,
        "np.clip(probabilities, 0.001, 1), in Python, is more mod",
    ),
}
ARGUMENTS = {*inspect.signature(fwcrf.refine).parameters, "color", "kind", "label_axis"}


@pytest.mark.parametrize("case", CASES)
def test_messages_name_flags(case, tmp_path, fwcrf_command):
    image, scores, flags, expected, said = CASES[case]
    if image.dtype == np.uint8:
        Image.fromarray(image).save(tmp_path / "image.png")
    else:
        np.save(tmp_path / "image.npy", image)
    np.save(tmp_path / "scores.npy", scores)
    given = [next(tmp_path.glob("image.*")), "-s", tmp_path / "scores.npy", "-o", tmp_path / "a.npy"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, stderr = fwcrf_command("refine", *given, "--steps", 1, *flags.split())
    assert status == expected, stderr
    assert said in " ".join(stderr.split()), stderr
    before_python = re.split("[iI]n Python", stderr)[0]
    assert "lp-meshi" not in stderr
    assert not [name for name in ARGUMENTS if re.search(rf"\b{name}=", before_python)], stderr


def test_a_named_axis_is_not_doubted(tmp_path, fwcrf_command):
    Image.fromarray(IMAGE[:40, :40]).save(tmp_path / "image.png")
    np.save(tmp_path / "s.npy", RNG.normal(size=(5, 5, 5)))
    given = ("refine", tmp_path / "image.png", "-s", tmp_path / "s.npy", "-o", tmp_path / "a.npy")
    for axis in (0, 1, 2):
        options = ("--from", "logits", "--resize", "scores", "--label-axis", axis)
        status, _, stderr = fwcrf_command(*given, *options)
        assert status == 0 and "--label-axis" not in stderr


def test_batch_and_tune_name_flags(tmp_path, fwcrf_command):
    for folder, name, write in (
        ("images", "a.png", lambda path: Image.fromarray(IMAGE).save(path)),
        ("scores", "a.npy", lambda path: np.save(path, np.log(P))),
        ("truth", "a.png", lambda path: Image.fromarray(LABELS).save(path)),
    ):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / name)
    given = [tmp_path / "images", "-s", tmp_path / "scores", "--workers", 1]
    status, _, stderr = fwcrf_command("batch", *given, "-o", tmp_path / "out")
    assert status == 1 and "pass --from logits." in stderr and "from_logits" not in stderr
    truth = ("-t", tmp_path / "truth", "--trials", 1)
    status, _, stderr = fwcrf_command("tune", *given, *truth, "-o", tmp_path / "a.yaml")
    assert status == 1 and "pass --from logits." in stderr and "from_logits" not in stderr


def test_the_changes_are_printed_with_verbose(tmp_path, fwcrf_command):
    Image.fromarray(IMAGE).save(tmp_path / "image.png")
    np.save(tmp_path / "p.npy", P)
    given = ("refine", tmp_path / "image.png", "-s", tmp_path / "p.npy", "-o", tmp_path / "a.npy")
    status, _, stderr = fwcrf_command(*given, "--verbose")
    expected = fwcrf.changes(P.argmax(-1), np.load(tmp_path / "a.npy"))
    assert status == 0 and f"{expected}\n" in stderr
    assert "pixels changed" not in fwcrf_command(*given)[2]


def test_a_lost_object_is_said_on_the_command_line(tmp_path, fwcrf_command):
    p = np.full((30, 40, 2), (0.98, 0.02))
    p[10:14, 10:14] = 0.05, 0.95
    Image.fromarray(np.full((30, 40, 3), 90, np.uint8)).save(tmp_path / "image.png")
    np.save(tmp_path / "p.npy", p)
    given = (tmp_path / "image.png", "-s", tmp_path / "p.npy", "-o", tmp_path / "a.npy")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        status, _, stderr = fwcrf_command("refine", *given, "--bilateral", 20, 13, 9)
    assert status == 0 and "label 1 disappeared, of up to 16 pixels" in stderr
    assert "label 0 took over" in stderr


def test_words_without_flags_stay_as_they_are():
    assert in_flags("scores/a.npy has 3 NaN entries") == "scores/a.npy has 3 NaN entries"
