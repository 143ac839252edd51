"""The Python part without the names that Windows does not have."""

import subprocess
import sys
from pathlib import Path

import pytest

# Without names that CPython has on Linux and not on Windows. A worker's death is then seen by its status.
PROGRAM = """
import os, pkgutil, signal, sys, time
import torch, numpy as np  # have their own ways without these names
sys.path.insert(0, sys.argv[1])
import fake_msvcrt
for name in "fcntl resource pwd grp termios tty pty readline".split():
    sys.modules[name] = None
sys.modules["msvcrt"] = fake_msvcrt
os.environ["USERNAME"] = "someone"  # as Windows has it
missing = '''
    fork forkpty register_at_fork O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_SYNC getuid geteuid getgid
    getpgid getpgrp setsid setpgid killpg mkfifo mknod chown fchmod fchown lchown sched_getaffinity
    sched_setaffinity sched_yield sysconf statvfs fstatvfs uname ctermid ttyname nice wait WIFEXITED
    WIFSIGNALED WTERMSIG WEXITSTATUS WNOHANG posix_fadvise posix_fallocate pread pwrite preadv pwritev
    sendfile openpty pipe2 getloadavg getpriority memfd_create
'''
for name in missing.split():
    delattr(os, name)
missing = "SIGKILL SIGALRM SIGCHLD SIGHUP SIGPIPE SIGQUIT SIGSTOP SIGCONT SIGUSR1 alarm setitimer pause"
for name in missing.split():
    delattr(signal, name)
del time.tzset, time.clock_gettime

import fwcrf
for module in pkgutil.walk_packages(fwcrf.__path__, "fwcrf."):
    if module.name.endswith("__main__"):
        continue
    try:
        __import__(module.name)
    except ImportError as error:
        print(module.name, error.name)  # lock_posix, and extras that are not installed here

from fwcrf.apps.batch import local, lock

class Dead:
    exitcode = 3
    def join(self): pass

image = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
scores = np.random.default_rng(1).dirichlet(np.ones(3), (6, 8))
assert fwcrf.refine(image, scores).shape == (6, 8)
with lock.exclusive("."):
    lock.share(".")
print(lock.system.__name__)
print(local._cause_of_death(Dead()))
"""


@pytest.mark.posix
def test_every_module_without_the_names_of_posix(tmp_path):
    fakes = Path(__file__).parents[1] / "apps" / "batch"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(fakes)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    *without, system, cause = done.stdout.splitlines()
    assert {line.split()[1] for line in without} <= {"fcntl", "triton", "napari"}
    assert system == "fwcrf.apps.batch.lock_windows"
    assert cause == "the worker process ended with status 3"
