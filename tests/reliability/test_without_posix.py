"""The Python part without the names that Windows does not have."""

import subprocess
import sys

# Windows has no fork, no SIGKILL and no fcntl; local.py sees the death of a worker by a status.
PROGRAM = """
import os, signal, sys
import torch  # has its own way without these names
del os.register_at_fork, os.fork, signal.SIGKILL
sys.modules["fcntl"] = None

import numpy as np
import fwcrf
from fwcrf.apps.batch import local, lock
from fwcrf.apps.files import settings

class Dead:
    exitcode = 3
    def join(self): pass

image = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
scores = np.random.default_rng(1).dirichlet(np.ones(3), (6, 8))
assert fwcrf.refine(image, scores).shape == (6, 8)
with lock.exclusive("."):
    lock.share(".")
print(local._cause_of_death(Dead()))
"""


def test_refine_and_batches_without_the_names_of_posix(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the worker process ended with status 3\n"
