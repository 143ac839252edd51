"""Names of files may hold control characters. No command prints them: a terminal would obey."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scenes import write_scenes

from fwcrf.apps.batch.local import attempt

pytestmark = pytest.mark.posix  # names on Windows hold no control characters

NAME = "a\x1b]0;owned\x07\x1b[2J\r\x9b1m"


@pytest.fixture
def scenes(tmp_path, monkeypatch, num_threads):
    def engine(job, items, *, num_workers, prepare):
        return ((i, attempt(job, item)) for i, item in enumerate(items))

    monkeypatch.setattr("fwcrf.apps.batch.run.run_locally", engine)
    found = write_scenes(tmp_path / "scenes", 2)
    for folder, ending in (("images", "png"), ("scores", "npy"), ("truth", "png")):
        (found / folder / f"0.{ending}").rename(found / folder / f"{NAME}.{ending}")
    np.save(found / "scores" / "1.npy", np.load(found / "scores" / "1.npy") * 2)
    return found


def assert_plain(text):
    assert text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_batches(scenes, tmp_path, fwcrf_command):
    (scenes / "scores" / f"{NAME}.npy").write_bytes(b"")
    given = ("batch", scenes / "images", "-s", scenes / "scores", "-j", 1, "-o")
    status, out, err = fwcrf_command(*given, tmp_path / NAME)
    assert status == 1 and "failed: " in err and "is empty" in err
    assert_plain(out + err)
    (scenes / "scores" / "1.npy").rename(scenes / "scores" / f"1{NAME}.npy")
    (scenes / "images" / "1.png").rename(scenes / "images" / f"1{NAME}.png")
    status, out, err = fwcrf_command(*given, tmp_path / "out")
    assert "sums to" in err and f"1{NAME[0]}" in err
    assert_plain(out + err)
    (tmp_path / "out" / f"{NAME}.png").write_text("mine")
    assert_plain(fwcrf_command(*given, tmp_path / "out")[2])


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", NAME, f"{NAME}.csv"])
def test_lists(scenes, tmp_path, fwcrf_command, name):
    (tmp_path / name).write_text(f'{{"{NAME}": "{NAME}"}}\n{NAME},{NAME},{NAME}\n')
    status, out, err = fwcrf_command("batch", tmp_path / name, "-o", tmp_path / "out")
    assert status == 1
    assert_plain(out + err)


@pytest.mark.parametrize(
    "arguments",
    [
        [NAME],
        ["refine", NAME, f"--{NAME}"],
        ["refine", NAME, "-s", NAME, "-o", f"{NAME}.png"],
        ["refine", NAME, "-s", NAME, "-o", NAME],
        ["refine", "a.png", "-s", NAME, "-o", "a.png", "--solver", NAME],
        ["refine", "a.png", "-s", NAME, "-o", "a.png", "--config", NAME],
        ["refine", "a.png", "-s", NAME, "-o", "a.png", "--limit", NAME],
        ["batch", ".", "-s", NAME, "-o", NAME],
        ["batch", ".", "-o", NAME],
        ["tune", ".", "-o", NAME],
        ["map", NAME],
        ["bench", NAME],
        ["bench", f"--{NAME}"],
        ["map", NAME, "-o", f"no/{NAME}"],
        ["train", NAME, "-o", NAME],
        ["eval", NAME, "-o", NAME],
        ["experiment", NAME, "-o", "out"],
        ["experiment", "energy", "-o", "out", "--data", NAME],
        ["demo", "--host", NAME, "--no-browser"],
    ],
)
def test_names_on_the_command_line(tmp_path, fwcrf_command, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    status, out, err = fwcrf_command(*arguments)
    assert status in (1, 2)
    assert_plain(out + err)


def test_a_written_file_and_a_failure_on_a_terminal(scenes, tmp_path, fwcrf_command):
    image, scores = scenes / "images" / f"{NAME}.png", scenes / "scores" / f"{NAME}.npy"
    status, _, err = fwcrf_command("refine", image, "-s", scores, "-o", tmp_path / f"{NAME}.png")
    assert status == 0
    assert_plain(err)
    import pty

    ours, theirs = pty.openpty()
    code = f"""
from fwcrf.apps.cli.progress import progress
with progress("refining", 1) as advance:
    advance({NAME!r})
"""
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, env=environment)
    os.close(theirs)
    said = os.read(ours, 1 << 16)
    os.close(ours)
    assert b"a?]0;owned??[2J ?1m" in said


def test_messages_about_arrays_name_the_files(scenes, tmp_path, fwcrf_command):
    np.save(scenes / "scores" / "1.npy", np.ones((3, 4, 2), np.float32))
    image, scores = scenes / "images" / "1.png", scenes / "scores" / "1.npy"
    status, _, err = fwcrf_command("refine", image, "-s", scores, "-o", tmp_path / "a.png")
    assert status == 1
    assert err.startswith(f"fwcrf: {image} with {scores}: ")
