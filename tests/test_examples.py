"""Every example runs, and says what it is for."""

import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shared_data import ROOT, needs

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch, capsys):
    """``example(name, *arguments)`` runs one in this process, which spares it the imports: what it prints."""

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.syspath_prepend(str(EXAMPLES))
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_refine_photograph_moves_borders_to_edges_and_draws(example, tmp_path):
    picture = tmp_path / "out" / "refined.png"
    printed = example("refine_photograph.py", "--photograph", "camera", "-o", picture)
    assert "5 steps of l2fw" in printed  # the default's
    before, after = map(float, re.search(r"across borders +(\S+) +(\S+)", printed).groups())
    assert after > 1.5 * before
    counts = re.findall(r"^pixels of .* (\d+) +(\d+)$", printed, re.MULTILINE)
    assert [sum(map(int, column)) for column in zip(*counts, strict=True)] == [512 * 512] * 2
    assert str(picture) in printed
    with Image.open(picture) as image:
        assert image.width > 3 * image.height


def test_draw_gallery_draws_every_picture_of_the_page(example, tmp_path):
    """All names are in the page, and two of the pictures, drawn here, are small enough for it."""
    for name in ("refined", "chin"):
        example("draw_gallery.py", "--only", name, "-o", tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["gallery-chin.jpg", "refined.jpg"]
    assert all(10_000 < (tmp_path / name).stat().st_size < 150_000 for name in drawn)
    gallery = runpy.run_path(str(EXAMPLES / "draw_gallery.py"))
    called = {f"gallery-{name}.jpg" for name in (*gallery["examples"].NAMES, *gallery["FAILURES"])}
    docs = EXAMPLES.parent / "docs"
    assert called == set(re.findall(r"assets/(gallery-\w+\.jpg)", (docs / "gallery.md").read_text()))
    assert called == {path.name for path in (docs / "assets").glob("gallery-*")}


def test_train_small_learns_with_and_without_the_crf(example):
    printed = example("train_small.py", "--iterations", 24, "--every", 24)
    rows = [line.split() for line in printed.splitlines() if line[:9].strip().isdigit()]
    assert [int(row[0]) for row in rows] == [0, 24]
    alone, with_crf = ([float(row[i]) for row in rows] for i in (3, 4))
    assert alone[-1] > alone[0] and with_crf[-1] > with_crf[0]
    assert "bandwidth 1.color" in printed


def test_train_from_scribbles_gains_by_the_crf_loss(example, num_threads):
    printed = example("train_from_scribbles.py", "--seeds", 2, "--iterations", 48)
    rows = re.findall(r"^(\S.*?)  +([\d.]+) +[\d.]+ +[\d.]+$", printed, re.MULTILINE)
    found = {name: float(mean) for name, mean in rows}
    alone, every = found["scribbles: cross-entropy"], found["all labels: cross-entropy"]
    assert alone + 0.5 < found["scribbles: + CRF loss"] < every
    assert alone < found["scribbles: + gated CRF loss"] < every


@pytest.mark.linux
def test_large_image_is_nearly_what_it_is_at_once(example, tmp_path):
    given = ("--size", 300, "--memory", 0.03, "--overlap", 60, "--folder", tmp_path, "--whole")
    printed = example("large_image.py", *given)
    assert "tile 2 of" in printed
    assert float(printed.split("different without tiles: ")[1].split("%")[0]) < 5


def test_parameter_sweep_draws_a_strip(example, tmp_path):
    printed = example("parameter_sweep.py", "--only", "balance", "-o", tmp_path)
    assert printed.split() == [str(tmp_path / "sweep-balance.jpg")]
    with Image.open(tmp_path / "sweep-balance.jpg") as image:
        assert image.width > 2 * image.height
        columns = np.asarray(image.convert("L"), int)
    first, last = columns[30:, :200], columns[30:, -236:-36]
    assert np.abs(first - last).mean() > 2  # the labels differ


def test_draw_lattice_draws(example, tmp_path):
    assert example("draw_lattice.py", "-o", tmp_path / "a.png").strip() == str(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 4 * image.height > 800


@pytest.mark.data
@needs("weights")
def test_make_scores_makes_the_stored_scores(example, tmp_path):
    import fwcrf.examples.photographs as stored

    printed = example("make_scores.py", "--data", ROOT, "--only", "chelsea", "-o", tmp_path)
    assert str(tmp_path / "chelsea.npz") in printed
    made, kept = (np.load(folder / "chelsea.npz") for folder in (tmp_path, stored.FOLDER))
    assert made["image_hw"].tolist() == kept["image_hw"].tolist() == [300, 451]
    # Other processors add in another order, and then round to the next sixteenth.
    np.testing.assert_allclose(made["logits"].astype(float), kept["logits"].astype(float), atol=1 / 16)


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_every_example_explains_itself(name, example, capsys):
    with pytest.raises(SystemExit) as end:
        example(name, "--help")
    assert end.value.code == 0
    assert "usage" in capsys.readouterr().out
