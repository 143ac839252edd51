"""A run that is killed, by SIGKILL and at any moment, ends with the same weights as one that is not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent

# Children are forked, so that each starts at once. With one thread there is no pool that would not survive.
SCRIPT = """
import os, random, signal, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
import torch
import small_run

torch.set_num_threads(1)
folder = Path(sys.argv[1])
small_run.config(folder)

def child(output, die=None):
    pid = os.fork()
    if pid == 0:
        try:
            if die is not None:
                die()
            small_run.train(folder, output, epochs=8)
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    return pid

def ended(pid):
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return not os.WIFSIGNALED(status)

small_run.train(folder, "whole", epochs=8)  # once to load and to warm up whatever can be

# A moment after one of the next few steps.
def rows():
    path = folder / "random" / "train.csv"
    return path.read_text().count("\\n") if path.exists() else 0

kills = 0
random.seed(0)
for number in range(60):
    pid = child("random")
    start, further = rows(), random.randint(1, 4)
    # A run that goes on first takes back the rows that came after its checkpoint.
    while rows() < start + further and os.waitpid(pid, os.WNOHANG)[0] == 0:
        time.sleep(0.002)
        start = min(start, rows())
    time.sleep(random.uniform(0, 0.02))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        break
    if ended(pid):
        break
    kills += 1

# Just before and just after each file is put in place, the checkpoints among them.
def dies_at(count, after):
    def arrange():
        replace, calls = os.replace, []
        def replaced(*arguments):
            calls.append(1)
            if len(calls) == count and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            replace(*arguments)
            if len(calls) == count:
                os.kill(os.getpid(), signal.SIGKILL)
        os.replace = replaced
    return arrange

files = 0
for number in range(100):
    if ended(child("files", dies_at(4 + number % 3, after=number % 2 == 0))):
        break
    files += 1
print(kills, files)
"""


@pytest.mark.posix
def test_killed_at_any_moment(tmp_path):
    script = textwrap.dedent(SCRIPT).replace("{paths!r}", repr([str(HERE), str(HERE.parents[1])]))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True, text=True, timeout=250, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kills, files = map(int, done.stdout.split())
    assert kills >= 3 and files >= 3, "the runs were too short to be killed in"
    whole = torch.load(tmp_path / "whole" / "model.pt", weights_only=True)
    for output in ("random", "files"):
        weights = torch.load(tmp_path / output / "model.pt", weights_only=True)
        assert weights.keys() == whole.keys()
        for name, value in whole.items():
            assert torch.equal(weights[name], value), f"{output}: {name}"
        for name in ("train.csv", "validation.csv"):
            assert (tmp_path / output / name).read_text() == (tmp_path / "whole" / name).read_text()
        left = [path.name for path in (tmp_path / output).iterdir() if "part" in path.name]
        assert not left
