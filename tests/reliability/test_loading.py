"""Files are data: nothing in a checkpoint, an array or a config is run. And nothing needs a network."""

import ast
import os
import pickle
import subprocess
import sys
import textwrap
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import splits
from scenes import write_scenes

import fwcrf
from fwcrf.apps.files import FileError, read_image, read_labels, read_scores
from fwcrf.apps.files.settings import read_settings
from fwcrf.apps.models import read_state
from fwcrf.apps.training import checkpoint
from fwcrf.apps.training.config import read_config

SOURCE = Path(fwcrf.__file__).parent


class Hostile:
    """Whoever unpickles this writes a file."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def _pickled(path, mark):
    path.write_bytes(pickle.dumps(Hostile(mark)))


def _saved(path, mark):
    torch.save({"state_dict": {"weight": Hostile(mark)}, "format": 1, "step": Hostile(mark)}, path)


def _saved_old(path, mark):
    torch.save({"model": Hostile(mark)}, path, _use_new_zipfile_serialization=False)


def _zipped(path, mark):
    """As torch writes it, with another pickle in it."""
    torch.save({"weight": torch.ones(1)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, pickle.dumps(Hostile(mark)) if name.endswith("data.pkl") else data)


def _array(path, mark):
    with open(path, "wb") as file:
        np.lib.format.write_array(file, np.array([Hostile(mark)], object), allow_pickle=True)


def _archive(path, mark):
    np.savez(path, probabilities=np.array([Hostile(mark)], object))


def _yaml(path, mark):
    path.write_text(f"solver: !!python/object/apply:os.mkdir [{str(mark)!r}]\n")


HOSTILE = {
    "pickle": ("a.pt", _pickled),
    "torch": ("a.pt", _saved),
    "older torch": ("a.pt", _saved_old),
    "changed torch": ("a.pt", _zipped),
    "pickle called safetensors": ("a.safetensors", _pickled),
    "npy": ("a.npy", _array),
    "npz": ("a.npz", _archive),
    "yaml": ("a.yaml", _yaml),
}
LOADERS = {
    "weights": read_state,
    "checkpoint": checkpoint.read,
    "image": read_image,
    "scores": read_scores,
    "labels": read_labels,
    "settings": read_settings,
    "config": read_config,
}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_in_a_file_is_run(kind, loader, tmp_path):
    name, write = HOSTILE[kind]
    mark = tmp_path / "run"
    write(tmp_path / name, mark)
    with pytest.raises(FileError):
        LOADERS[loader](tmp_path / name)
    assert not mark.exists()


@pytest.mark.parametrize("kind", ["pickle", "torch", "changed torch"])
def test_the_files_would_do_harm(kind, tmp_path):
    """Otherwise the tests above would prove nothing."""
    name, write = HOSTILE[kind]
    write(tmp_path / name, tmp_path / "run")
    with suppress(Exception):  # the harm is done before torch sees that something is wrong
        torch.load(tmp_path / name, weights_only=False)
    assert (tmp_path / "run").exists()


def test_a_hostile_checkpoint_stops_training(tmp_path, fwcrf_command):
    config = tmp_path / "a.yaml"
    splits(tmp_path / "data", size=(24, 32))
    config.write_text(
        f"data: {{name: splits, root: {tmp_path}/data}}\nmodel: {{name: mobilenetv2}}\nbatch_size: 2\n"
    )
    (tmp_path / "out").mkdir()
    _saved(tmp_path / "out" / "checkpoint.pt", tmp_path / "run")
    status, _, err = fwcrf_command("train", config, "-o", tmp_path / "out")
    assert status == 1
    assert "checkpoint.pt is not a checkpoint of fwcrf, or it is damaged" in err
    assert not (tmp_path / "run").exists()


# Where processes of one run talk to each other, or an object is copied; nothing comes from a file.
OWN_PROCESSES = {"apps/batch/on_ray.py", "solvers/solution.py"}


def test_no_call_that_could_run_what_it_reads():
    for path in SOURCE.rglob("*.py"):
        place = str(path.relative_to(SOURCE))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name, options = ast.unparse(node.func), {k.arg: ast.unparse(k.value) for k in node.keywords}
            where = f"{place}:{node.lineno}: {name}"
            assert name not in ("exec", "joblib.load", "os.system"), where
            assert name != "eval" or place == "apps/cli/options.py", where  # annotations of our own functions
            assert name != "yaml.load" or place == "apps/files/safe_yaml.py", where
            assert not name.startswith(("pickle.", "dill.")) or place in OWN_PROCESSES, where
            assert name != "torch.load" or options.get("weights_only") == "True", where
            assert options.get("allow_pickle") != "True" and options.get("shell") != "True", where


# --- no network ------------------------------------------------------------------------------------

# Found by every process, workers included, because its folder is on their path.
NO_NETWORK = """
import socket

def refuse(*arguments, **options):
    raise AssertionError(f"the network was asked for: {arguments}")

class Local(socket.socket):
    def connect(self, address):
        refuse(address) if self.family != socket.AF_UNIX else super().connect(address)

    connect_ex = connect

socket.socket = Local
socket.create_connection = socket.getaddrinfo = socket.gethostbyname = refuse
"""


@pytest.fixture
def offline(tmp_path):
    (tmp_path / "offline").mkdir()
    (tmp_path / "offline" / "sitecustomize.py").write_text(textwrap.dedent(NO_NETWORK))
    path = os.pathsep.join([str(tmp_path / "offline"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=250,
        )
        assert "network was asked for" not in done.stdout + done.stderr
        return done

    return run


def test_the_network_is_really_refused(offline):
    done = offline(
        "-c",
        "import socket\ntry: socket.create_connection(('localhost', 9))\nexcept AssertionError: print('no')",
    )
    assert done.stdout == "no\n"


def test_commands_without_a_network(offline, tmp_path):
    """In one process, which takes seconds to start; batches have workers of their own."""
    scenes = write_scenes(tmp_path / "scenes", 2)
    data = splits(tmp_path / "data", count=2, size=(24, 32))
    config = tmp_path / "a.yaml"
    config.write_text(
        f"data: {{name: splits, root: {data}, crop: [33, 33]}}\nmodel: {{name: mobilenetv2}}\nepochs: 1\n"
        "batch_size: 2\nrun: {workers: 0}\n"
    )
    (tmp_path / "model.uai").write_text("MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n")
    commands = [
        ["refine", scenes / "images/0.png", "-s", scenes / "scores/0.npy", "-o", tmp_path / "0.png"],
        ["batch", scenes / "images", "-s", scenes / "scores", "-o", tmp_path / "out", "-j", "1"],
        ["tune", scenes / "images", "-s", scenes / "scores", "-t", scenes / "truth",
         "-o", tmp_path / "best.yaml", "--trials", "1", "-j", "1"],
        ["map", tmp_path / "model.uai", "-o", tmp_path / "labels.txt"],
        ["train", config, "-o", tmp_path / "run"],
        ["eval", tmp_path / "run", "-o", tmp_path / "scores"],
    ]  # fmt: skip
    script = f"""
        import sys, socket
        from fwcrf.apps.cli.app import run
        assert socket.socket.__name__ == "Local"
        if __name__ == "__main__":
            for command in {[list(map(str, command)) for command in commands]!r}:
                assert run(command) == 0, command
    """
    (tmp_path / "commands.py").write_text(textwrap.dedent(script))
    done = offline(tmp_path / "commands.py")
    assert done.returncode == 0, done.stderr
