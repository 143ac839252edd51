import os
import random
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scenes import write_scenes

from fwcrf.apps.batch.local import attempt
from fwcrf.apps.files import read_labels
from fwcrf.apps.files.arrays import read_npz


@pytest.fixture
def scenes(tmp_path):
    return write_scenes(tmp_path / "scenes", 3)


@pytest.fixture
def in_process(monkeypatch, num_threads):
    """The same jobs without processes for them, which take long to start."""

    def engine(job, items, *, num_workers, prepare):
        return ((i, attempt(job, item)) for i, item in enumerate(items))

    monkeypatch.setattr("fwcrf.apps.batch.run.run_locally", engine)


def given(scenes, *more):
    return ("batch", scenes / "images", "--scores", scenes / "scores", "-j", 1, *more)


def outputs(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.png"))}


def test_overlays_and_probabilities_beside_the_labels(scenes, tmp_path, fwcrf_command, in_process):
    """All files of an image are finished, or it is done again."""
    out, asked = tmp_path / "out", ("--overlay", "--probabilities", "--preset", "paper")
    assert fwcrf_command(*given(scenes, "-o", out))[0] == 0
    status, _, err = fwcrf_command(*given(scenes, "-o", out, *asked))
    assert status == 0 and "3 outputs of other settings or inputs are made again" in err
    written = outputs(out)
    assert [*written] == [f"{i}{end}.png" for i in range(3) for end in ("-overlay", "")]
    image, scores, alone = scenes / "images/0.png", scenes / "scores/0.npy", tmp_path / "0.png"
    more = ("--overlay", "--probabilities", tmp_path / "p.npz", "--preset", "paper")
    assert fwcrf_command("refine", image, "-s", scores, "-o", alone, *more)[0] == 0
    assert written["0.png"] == alone.read_bytes()
    assert written["0-overlay.png"] == (tmp_path / "0-overlay.png").read_bytes()
    kept = {
        name: read_npz(folder / name)[1]
        for folder, name in ((out, "0-probabilities.npz"), (tmp_path, "p.npz"))
    }
    np.testing.assert_array_equal(*kept.values())
    assert (kept["p.npz"].argmax(-1) == read_labels(alone)).all()

    assert fwcrf_command(*given(scenes, "-o", out, *asked))[2] == "0 refined, 3 done before, 0 failed\n"
    (out / "1-overlay.png").unlink()
    assert "1 refined, 2 done before, 0 failed" in fwcrf_command(*given(scenes, "-o", out, *asked))[2]
    assert outputs(out) == written
    (out / "2-probabilities.npz").write_bytes(b"my own")
    status, _, err = fwcrf_command(*given(scenes, "-o", out, *asked))
    assert status == 1 and "2-probabilities.npz exists already and was not written by a batch" in err


def test_files_beside_the_labels_have_names_of_their_own(scenes, tmp_path, fwcrf_command, in_process):
    (scenes / "images/1.png").rename(scenes / "images/0-overlay.png")
    (scenes / "scores/1.npy").rename(scenes / "scores/0-overlay.npy")
    status, _, err = fwcrf_command(*given(scenes, "-o", tmp_path / "out", "--overlay"))
    assert status == 1 and "would both write 0-overlay.png" in err


def test_a_folder_with_a_bad_file(scenes, tmp_path, fwcrf_command, in_process):
    """The others are done, the exit status tells, and the next run does what is left."""
    good = (scenes / "scores/1.npy").read_bytes()
    (scenes / "scores/1.npy").write_bytes(good[: len(good) // 2])
    (scenes / "scores/2.npy").unlink()
    out = tmp_path / "out"
    status, stdout, err = fwcrf_command(*given(scenes, "-o", out))
    assert (status, stdout) == (1, "")
    assert f"failed: {scenes}/images/1.png: {scenes}/scores/1.npy is truncated" in err
    assert f"failed: {scenes}/images/2.png: {scenes}/scores/2.npy cannot be read: No such file" in err
    assert re.search(r"1 refined, 0 done before, 2 failed; [\d.]+ % of the pixels changed\n$", err)
    assert [*outputs(out)] == ["0.png"]

    fwcrf_command("refine", scenes / "images/0.png", "-s", scenes / "scores/0.npy", "-o", tmp_path / "0.png")
    np.testing.assert_array_equal(read_labels(out / "0.png"), read_labels(tmp_path / "0.png"))

    (scenes / "scores/1.npy").write_bytes(good)
    (scenes / "scores/2.npy").write_bytes(good)
    status, _, err = fwcrf_command(*given(scenes, "-o", out))
    assert status == 0
    assert re.fullmatch(r"2 refined, 1 done before, 0 failed; [\d.]+ % of the pixels changed\n", err)
    assert fwcrf_command(*given(scenes, "-o", out)) == (0, "", "0 refined, 3 done before, 0 failed\n")


def test_a_list_and_warnings(scenes, tmp_path, fwcrf_command):
    for i in range(3):
        np.save(scenes / f"scores/{i}.npy", 2 * np.load(scenes / f"scores/{i}.npy"))
    table = "".join(f"scenes/images/{i}.png,scenes/scores/{i}.npy,sub/{i}.npz\n" for i in range(3))
    (tmp_path / "list.csv").write_text("image,scores,output\n" + table)
    status, _, err = fwcrf_command("batch", tmp_path / "list.csv", "-o", tmp_path / "out", "-j", 1)
    assert status == 0
    assert err.count("sums to") == 1
    assert "(2 more like this.)" in err
    assert sorted(os.listdir(tmp_path / "out/sub")) == ["0.npz", "1.npz", "2.npz"]


def test_changed_settings_are_announced(scenes, tmp_path, fwcrf_command, in_process):
    assert fwcrf_command(*given(scenes, "-o", tmp_path / "out", "--steps", 1))[0] == 0
    status, _, err = fwcrf_command(*given(scenes, "-o", tmp_path / "out", "--steps", 2))
    assert status == 0
    announced, summary = err.splitlines()
    assert announced == "3 outputs of other settings or inputs are made again"
    assert summary.startswith("3 refined, 0 done before, 0 failed; ")


def test_bad_usage(scenes, tmp_path, fwcrf_command):
    for arguments in (
        ("batch", scenes / "images", "-o", tmp_path / "out"),
        given(scenes),
        given(scenes, "-o", tmp_path / "out", "--address", "a:1"),
        given(scenes, "-o", tmp_path / "out", "--engine", "magic"),
    ):
        status, out, _ = fwcrf_command(*arguments)
        assert (status, out) == (2, "")
    (tmp_path / "file").touch()
    status, _, err = fwcrf_command(*given(scenes, "-o", tmp_path / "file"))
    assert status == 1
    assert "cannot be made" in err


@pytest.mark.parametrize("command", ["batch", "pseudo-labels", "tune"])
def test_a_folder_that_is_missing_is_called_so(scenes, tmp_path, fwcrf_command, command):
    of = {"batch": ["--scores"], "pseudo-labels": ["--maps"], "tune": ["--scores", "--truth"]}[command]
    more = [part for flag in of for part in (flag, scenes / "scores")]
    output = tmp_path / ("best.yaml" if command == "tune" else "out")
    status, _, err = fwcrf_command(command, tmp_path / "image", *more, "-o", output)
    assert (status, err) == (1, f"fwcrf: {tmp_path}/image cannot be read: No such file or directory.\n")


@pytest.mark.posix
@pytest.mark.slow
def test_the_program_killed_and_resumed_gives_the_same_bytes(tmp_path, fwcrf_command, in_process):
    scenes = write_scenes(tmp_path / "scenes", 6)
    assert fwcrf_command(*given(scenes, "-o", tmp_path / "whole"))[0] == 0
    out, chance, killed = tmp_path / "out", random.Random(1), 0
    command = [sys.executable, "-m", "fwcrf", *map(str, given(scenes, "-o", out))]
    for enough in (2, 6):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as batch:
            while batch.poll() is None and len(outputs(out)) < enough:
                time.sleep(0.005)
            time.sleep(chance.random() * 0.05)
            before = outputs(out)
            batch.send_signal(signal.SIGKILL if enough < 6 else 0)
        killed += batch.returncode == -signal.SIGKILL
        assert before.items() <= outputs(out).items()
    assert killed == 1
    assert batch.returncode == 0
    assert outputs(out) == outputs(tmp_path / "whole")
    assert not list(out.glob(".*part"))
