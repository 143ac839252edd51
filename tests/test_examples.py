"""Every example runs, and says what it is for."""

import runpy
import sys
from pathlib import Path

import pytest
from PIL import Image

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


def test_refine_photograph_lowers_the_energy_and_writes_the_picture(example, tmp_path):
    picture = tmp_path / "out" / "refined.png"
    printed = example("refine_photograph.py", "--steps", 4, "-o", picture)
    rows = [line.split() for line in printed.splitlines() if line[:4].strip().isdigit()]
    energies = [float(row[1]) for row in rows]
    assert [int(row[0]) for row in rows] == [0, 1, 2, 3, 4]
    assert energies[-1] < energies[0]
    assert str(picture) in printed
    with Image.open(picture) as image:
        assert image.size == (3 * 512, 512)


def test_train_small_learns_with_and_without_the_crf(example):
    printed = example("train_small.py", "--iterations", 24, "--every", 24)
    rows = [line.split() for line in printed.splitlines() if line[:9].strip().isdigit()]
    assert [int(row[0]) for row in rows] == [0, 24]
    alone, with_crf = ([float(row[i]) for row in rows] for i in (3, 4))
    assert alone[-1] > alone[0] and with_crf[-1] > with_crf[0]
    assert "bandwidth 1.color" in printed


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_image_is_nearly_what_it_is_at_once(example, tmp_path):
    given = ("--size", 300, "--memory", 0.03, "--overlap", 60, "--folder", tmp_path, "--whole")
    printed = example("large_image.py", *given)
    assert "tile 2 of" in printed
    assert float(printed.split("different without tiles: ")[1].split("%")[0]) < 5


def test_parameter_sweep_draws_a_strip(example, tmp_path):
    printed = example("parameter_sweep.py", "--only", "color", "-o", tmp_path)
    assert printed.split() == [str(tmp_path / "sweep-color.jpg")]
    with Image.open(tmp_path / "sweep-color.jpg") as image:
        assert image.width > 4 * image.height


def test_draw_lattice_draws(example, tmp_path):
    assert example("draw_lattice.py", "-o", tmp_path / "a.png").strip() == str(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.width > 4 * image.height > 800


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_every_example_explains_itself(name, example, capsys):
    with pytest.raises(SystemExit) as end:
        example(name, "--help")
    assert end.value.code == 0
    assert "usage" in capsys.readouterr().out
