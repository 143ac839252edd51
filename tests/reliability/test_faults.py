"""Kills, full disks and places that cannot be written: nothing lost, nothing half-written, a sentence.

``tests/apps`` kills whole programs; ``make reliability`` does all of it fifty times.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import write_scenes

import fwcrf
from fwcrf.apps.files import FileError, write_labels
from fwcrf.apps.files.settings import Settings, write_settings
from fwcrf.apps.training import checkpoint
from fwcrf.apps.training.checkpoint import Checkpoint

KILLS = Path(__file__).parent / "kills.py"


@pytest.mark.posix
@pytest.mark.parametrize(("kind", "kills"), [("writers", 8), ("batch", 5), ("tune", 4)])
def test_killed_at_random_moments(kind, kills, tmp_path):
    done = subprocess.run(
        [sys.executable, KILLS, kind, tmp_path, str(kills), "0"],
        capture_output=True, text=True, timeout=250, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] == kills


# --- no room, no permission ------------------------------------------------------------------------

FOLDERS = {"full": "size=32k", "read-only": "ro"}


@pytest.fixture(params=FOLDERS)
def bad_folder(request, tmp_path):
    """A folder on a disk that is full but for a few kilobytes, or that is read-only."""
    folder = tmp_path / request.param
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", FOLDERS[request.param], "tmpfs", folder], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here")
    yield folder, {"full": "No space left on device", "read-only": "Read-only file system"}[request.param]
    subprocess.run(["umount", folder], check=True)


LABELS = np.random.default_rng(0).integers(0, 256, (400, 500), dtype=np.uint8)
STATE = Checkpoint(1, {}, {"w": torch.ones(200, 200)}, {})
MODEL = fwcrf.SparseMRF(torch.rand(2000, 8), torch.tensor([[0, 1]]), fwcrf.graphs.Potts())
WRITERS = {
    "png": lambda folder: write_labels(folder / "a.png", LABELS),
    "npy": lambda folder: write_labels(folder / "a.npy", LABELS),
    "npz": lambda folder: write_labels(folder / "a.npz", LABELS),
    "tiff": lambda folder: write_labels(folder / "a.tif", LABELS),
    "nifti": lambda folder: write_labels(folder / "a.nii.gz", LABELS[None]),
    "settings": lambda folder: write_settings(folder / "a.yaml", Settings(), "x" * 100_000),
    "checkpoint": lambda folder: checkpoint.save(folder / "a.pt", STATE),
    "model": lambda folder: fwcrf.write_uai(folder / "a.uai", MODEL),
}


@pytest.mark.linux
@pytest.mark.parametrize("writer", WRITERS)
def test_what_cannot_be_written_is_said(writer, bad_folder):
    folder, said = bad_folder
    with pytest.raises(FileError, match=rf"a\.\w+.* cannot be written: {said}"):
        WRITERS[writer](folder)
    assert os.listdir(folder) == [], "something was left behind"


@pytest.mark.posix
@pytest.mark.parametrize("writer", WRITERS)
def test_a_limit_on_the_size_of_files(writer, tmp_path):
    """Where no disk can be mounted: the same by a limit, in a process of its own."""
    import resource

    pid = os.fork()
    if pid == 0:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
            WRITERS[writer](tmp_path)
        except FileError as error:
            os._exit(0 if "cannot be written: File too large" in str(error) else 3)
        except BaseException:
            os._exit(4)
        os._exit(5)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.linux
def test_commands_say_what_they_cannot_write(bad_folder, tmp_path, fwcrf_command, monkeypatch, num_threads):
    from fwcrf.apps.batch.local import attempt

    def engine(job, items, *, num_workers, prepare):
        return ((i, attempt(job, item)) for i, item in enumerate(items))

    monkeypatch.setattr("fwcrf.apps.batch.run.run_locally", engine)
    folder, said = bad_folder
    scenes = write_scenes(tmp_path / "scenes", 1)
    np.save(scenes / "scores" / "0.npy", np.full((300, 400, 3), 1 / 3, np.float32))
    from PIL import Image

    Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)).save(
        scenes / "images" / "0.png"
    )
    image, scores = scenes / "images" / "0.png", scenes / "scores" / "0.npy"
    for command in (
        ("refine", image, "-s", scores, "-o", folder / "a.npy", "--steps", 1),
        (
            "batch",
            scenes / "images",
            "-s",
            scenes / "scores",
            "-o",
            folder / "out",
            "--ending",
            ".npy",
            "-j",
            1,
        ),
    ):
        status, _, err = fwcrf_command(*command)
        assert status == 1
        assert said in err and str(folder) in err, err
        assert "Traceback" not in err and "Errno" not in err
    assert not [path for path in folder.rglob("*") if path.suffix == ".npy" or "part" in path.name]
