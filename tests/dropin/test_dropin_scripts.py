"""Whole scripts written for pydensecrf: with their import lines changed, as they are, and run by itself."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import dropin_cases as cases
import numpy as np
import pytest
from PIL import Image

import fwcrf.pydensecrf.__main__ as runner

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))
HEIGHT, WIDTH = 45, 62  # neither the same nor divisible by four


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """An image, a drawing and probabilities, as files."""
    folder = tmp_path_factory.mktemp("inputs")
    Image.fromarray(cases.picture(HEIGHT, WIDTH)).save(folder / "image.png")
    probabilities = cases.scores(HEIGHT, WIDTH, 4)
    np.save(folder / "probabilities.npy", probabilities)
    colors = np.array([(0, 0, 0), (200, 0, 0), (0, 200, 0), (0, 0, 200)], dtype=np.uint8)
    Image.fromarray(colors[probabilities.argmax(0)]).save(folder / "drawing.png")
    return folder


def arguments(script, inputs, output):
    second = "probabilities.npy" if script.stem == "probabilities" else "drawing.png"
    return [str(inputs / "image.png"), str(inputs / second), str(output)]


def run(script, inputs, output, *module):
    """The script's output, run in a process of its own."""
    command = [sys.executable, *module, str(script), *arguments(script, inputs, output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    with np.load(output) as stored:
        return dict(stored)


def with_its_import_lines_changed(script, inputs, output, monkeypatch):
    source, count = re.subn(
        r"^(import|from) pydensecrf", r"\1 fwcrf.pydensecrf", script.read_text(), flags=re.M
    )
    assert count >= 2
    monkeypatch.setattr(sys, "argv", [str(script), *arguments(script, inputs, output)])
    exec(compile(source, str(script), "exec"), {"__name__": "__main__"})
    with np.load(output) as stored:
        return dict(stored)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_after_changing_its_import_lines(script, inputs, tmp_path, monkeypatch):
    found = with_its_import_lines_changed(script, inputs, tmp_path / "out.npz", monkeypatch)
    assert str(found["module"]) == "fwcrf.pydensecrf.densecrf"
    assert found["labels"].shape == (HEIGHT, WIDTH)
    np.testing.assert_allclose(found["marginals"].sum(0), 1, rtol=1e-5)


def test_a_script_runs_as_it_is(inputs, tmp_path, monkeypatch):
    script = SCRIPTS[0]
    unchanged = run(script, inputs, tmp_path / "unchanged.npz", "-m", "fwcrf.pydensecrf")
    changed = with_its_import_lines_changed(script, inputs, tmp_path / "changed.npz", monkeypatch)
    for name, value in changed.items():
        np.testing.assert_array_equal(unchanged[name], value, err_msg=name)


@pytest.mark.skipif(find_spec("pydensecrf") is None, reason="pydensecrf is not installed: make .venv/.peers")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_gives_what_pydensecrf_gives(script, inputs, tmp_path, monkeypatch):
    ours = with_its_import_lines_changed(script, inputs, tmp_path / "ours.npz", monkeypatch)
    theirs = run(script, inputs, tmp_path / "theirs.npz")
    assert str(theirs["module"]) == "pydensecrf.densecrf"
    assert (ours["labels"] == theirs["labels"]).mean() >= 0.999
    np.testing.assert_allclose(ours["marginals"], theirs["marginals"], atol=1e-4)
    for name in ("stepped", "divergences"):
        if name in theirs:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", [[], ["absent.py"]])
def test_the_runner_needs_a_script(wrong, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fwcrf.pydensecrf", *wrong])
    with pytest.raises(SystemExit) as ended:
        runner.main()
    assert ended.value.code == 2
    assert "script" in capsys.readouterr().err
