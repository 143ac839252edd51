"""Locks of folders, on this system and as on Windows."""

import importlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fwcrf.apps.batch import lock
from fwcrf.apps.files.errors import FileError

# A worker of a batch, which ends when its standard input does.
WORKER = """
import sys
sys.path.insert(0, sys.argv[2])
from fwcrf.apps.batch import lock
if sys.argv[3] == "windows":
    import fake_msvcrt
    sys.modules["msvcrt"] = fake_msvcrt
    from fwcrf.apps.batch import lock_windows
    lock.system = lock_windows
lock.share(sys.argv[1])
print("shared", flush=True)
sys.stdin.read()
"""


# The locks that stand for those of Windows are Linux's.
@pytest.fixture(params=["here", pytest.param("windows", marks=pytest.mark.linux)])
def system(request, monkeypatch):
    if request.param == "windows":
        fake_msvcrt = importlib.import_module("fake_msvcrt")
        monkeypatch.setitem(sys.modules, "msvcrt", fake_msvcrt)
        monkeypatch.setattr(lock, "system", importlib.import_module("fwcrf.apps.batch.lock_windows"))
    monkeypatch.setattr(lock, "_PATIENCE", 0.1)
    return request.param


def worker(folder, system):
    command = [sys.executable, "-c", WORKER, str(folder), str(Path(__file__).parent), system]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "shared\n"
    return process


def test_one_batch_at_a_time(system, tmp_path):
    with lock.exclusive(tmp_path):
        with pytest.raises(FileError, match="another batch is writing to"), lock.exclusive(tmp_path):
            pass
        lock.share(tmp_path)  # a worker of this batch, beside it
    with pytest.raises(FileError, match="another batch"), lock.exclusive(tmp_path):
        pass  # this process still shares the lock


def test_a_worker_holds_the_lock_after_its_batch_until_it_is_killed(system, tmp_path, monkeypatch):
    with lock.exclusive(tmp_path):
        one, other = worker(tmp_path, system), worker(tmp_path, system)
    with one, other:
        one.kill()
        one.wait()
        with pytest.raises(FileError, match="another batch"), lock.exclusive(tmp_path):
            pass
        monkeypatch.setattr(lock, "_PATIENCE", 10)
        other.kill()
        start = time.monotonic()
        with lock.exclusive(tmp_path):
            assert time.monotonic() - start < 10


def test_a_file_system_without_locks(system, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock.system, "begin", refuse)
    with lock.exclusive(tmp_path):
        pass
