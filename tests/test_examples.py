import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_refine_photograph_lowers_the_energy_and_writes_the_picture(tmp_path):
    picture = tmp_path / "out" / "refined.png"
    command = [sys.executable, EXAMPLES / "refine_photograph.py", "--steps", "4", "-o", picture]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line[:4].strip().isdigit()]
    energies = [float(row[1]) for row in rows]
    assert [int(row[0]) for row in rows] == [0, 1, 2, 3, 4]
    assert energies[-1] < energies[0]
    assert str(picture) in done.stdout
    with Image.open(picture) as image:
        assert image.size == (3 * 512, 512)


def test_train_small_learns_with_and_without_the_crf():
    command = [sys.executable, EXAMPLES / "train_small.py", "--iterations", "24", "--every", "12"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line[:9].strip().isdigit()]
    assert [int(row[0]) for row in rows] == [0, 12, 24]
    alone, with_crf = ([float(row[i]) for row in rows] for i in (3, 4))
    assert alone[-1] > alone[0] and with_crf[-1] > with_crf[0]
    assert "bandwidth 1.color" in done.stdout


@pytest.mark.parametrize("name", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_every_example_explains_itself(name):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, "--help"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0
    assert "usage" in done.stdout
