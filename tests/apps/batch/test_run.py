"""A batch is done once, whatever happens; a real process is killed at random moments to see."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import slow_jobs
from slow_jobs import CopyJob, items_of

import fwcrf
from fwcrf.apps.batch import lock
from fwcrf.apps.batch.journal import NAME, Journal
from fwcrf.apps.batch.local import attempt
from fwcrf.apps.batch.manifest import Item
from fwcrf.apps.batch.run import run
from fwcrf.apps.files import FileError
from fwcrf.apps.files.settings import Settings


@pytest.fixture
def source(tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(4):
        (tmp_path / "in" / f"{i}.txt").write_text(f"content of {i}. ")
    return tmp_path / "in"


def inline(job, items, *, num_workers):
    """An engine without processes."""
    return ((i, attempt(job, item)) for i, item in enumerate(items))


def do(source, job, **options):
    """Run a batch without processes; the names of what was done, and of what failed."""
    outcomes = list(run(items_of(source), job, num_workers=1, engine=inline, **options))
    return [o.item.output for o in outcomes if not o.error], [o.item.output for o in outcomes if o.error]


def contents(folder):
    """Outputs by name; the journal and the lock are there too, and nothing else is."""
    assert not list(Path(folder).rglob(".*part*"))
    return {p.name: p.read_bytes() for p in sorted(Path(folder).glob("*.npy"))}


def stamps(folder):
    return {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in Path(folder).glob("*.npy")}


ALL = ["0.npy", "1.npy", "2.npy", "3.npy"]


def test_what_is_done_is_not_done_again(source, tmp_path):
    job = CopyJob(str(tmp_path / "out"))
    assert do(source, job) == (ALL, [])
    before, when = contents(tmp_path / "out"), stamps(tmp_path / "out")
    assert do(source, job) == ([], [])
    (tmp_path / "out" / "2.npy").unlink()
    assert do(source, job) == (["2.npy"], [])
    assert contents(tmp_path / "out") == before
    del when["2.npy"]
    assert when.items() <= stamps(tmp_path / "out").items()


def test_other_settings_and_other_files_are_noticed(source, tmp_path):
    job, plans = CopyJob(str(tmp_path / "out")), []
    do(source, job)
    other = replace(job, settings=Settings(num_steps=3))
    assert do(source, other, planned=plans.append) == (ALL, [])
    assert (plans[0].done, plans[0].stale) == (0, 4)
    (source / "1.txt").write_text("another content")
    assert do(source, other) == (["1.npy"], [])
    assert do(source, job) == (ALL, [])


def test_content_decides_not_size_and_time(source, tmp_path):
    """A file of the same name, size and time is read again; the same content at another time is not."""
    job = CopyJob(str(tmp_path / "out"))
    do(source, job)
    status = (source / "1.txt").stat()
    (source / "1.txt").write_text("CONTENT of 1. ")
    os.utime(source / "1.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    now = (source / "1.txt").stat()
    assert (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    os.utime(source / "2.txt", (1, 1))
    assert do(source, job) == (["1.npy"], [])
    assert (tmp_path / "out" / "1.npy").read_bytes().startswith(b"CONTENT")


def test_records_without_a_hash_of_the_content_are_not_trusted(source, tmp_path):
    """The key of earlier versions held name, size and modification time."""
    job = CopyJob(str(tmp_path / "out"))
    do(source, job)
    path = tmp_path / "out" / NAME
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("output") == "0.npy":
            status = (source / "0.txt").stat()
            file = ["0.txt", status.st_size, status.st_mtime_ns]
            line["key"] = job.settings.fingerprint(
                version=fwcrf.__version__, reading=asdict(job.reading), files=[file, file]
            )
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert do(source, job) == (["0.npy"], [])


def test_only_inputs_of_existing_outputs_are_hashed_beforehand(source, tmp_path, monkeypatch):
    """The hash of an unfinished item is taken by its worker."""
    job, before = CopyJob(str(tmp_path / "out")), []
    monkeypatch.setattr(CopyJob, "key", lambda self, item: before.append(item.output) or item.output)
    list(run(items_of(source), job, num_workers=1, engine=lambda *_, **__: ()))
    assert before == []
    do(source, job)
    assert before == ALL
    do(source, job)
    assert before == 2 * ALL


def test_a_failure_is_reported_and_tried_again(source, tmp_path):
    job = CopyJob(str(tmp_path / "out"))
    (source / "1.txt").unlink()
    items = [Item(str(source / f"{i}.txt"), "", f"{i}.npy") for i in range(4)]
    outcomes = list(run(items, job, num_workers=1, engine=inline))
    assert [bool(o.error) for o in outcomes] == [False, True, False, False]
    assert "No such file" in outcomes[1].error
    assert outcomes[0].warnings == ("beware",)
    (source / "1.txt").write_text("now")
    assert [o.item.output for o in run(items, job, num_workers=1, engine=inline)] == ["1.npy"]


def test_files_of_others_are_not_touched(source, tmp_path):
    job = CopyJob(str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "1.npy").write_text("mine")
    (tmp_path / "out" / "3.npy").write_text("mine")
    with pytest.raises(
        FileError, match=r"1\.npy exists already .*, and 1 more like it; choose another folder"
    ):
        do(source, job)
    assert (tmp_path / "out" / "1.npy").read_text() == "mine"
    assert do(source, job, overwrite=True) == (ALL, [])
    (tmp_path / "out" / "0.npy").write_text("corrected by hand")
    with pytest.raises(FileError, match=r"0\.npy exists already"):
        do(source, job)


def test_an_output_that_cannot_be_is_said_before_the_work(source, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="cannot be made"):
        do(source, CopyJob(str(tmp_path / "file" / "out")))
    item = Item("a.jpg", "a.npy", "a.jpg")
    with pytest.raises(FileError, match="JPEG would change them"):
        next(run([item], CopyJob(str(tmp_path / "out")), num_workers=1, engine=inline))


def test_one_batch_at_a_time(source, tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_PATIENCE", 0.1)
    job = CopyJob(str(tmp_path / "out"))
    first = run(items_of(source), job, num_workers=1, engine=inline)
    next(first)
    with pytest.raises(FileError, match="another batch is writing to"):
        do(source, job)
    first.close()
    assert do(source, job) == (ALL[1:], [])


def test_an_output_on_another_machine(source, tmp_path):
    def elsewhere(job, items, *, num_workers):
        for i, staged in inline(job, items, num_workers=1):
            Path(staged.temporary).unlink()
            yield i, staged

    job = CopyJob(str(tmp_path / "out"))
    outcomes = list(run(items_of(source), job, num_workers=1, engine=elsewhere))
    assert all("must be one that all machines share" in o.error for o in outcomes)


def test_a_spoilt_journal_costs_no_more_than_its_lines(source, tmp_path):
    job = CopyJob(str(tmp_path / "out"))
    do(source, job)
    path = tmp_path / "out" / NAME
    path.write_bytes(b'\xff\xfe{"output": 3}\n[]\n' + path.read_bytes() + b'{"output": "0.npy", "sha2')
    assert do(source, job) == ([], [])
    assert do(source, replace(job, settings=Settings(num_steps=2))) == (ALL, [])
    assert all(json.loads(line) for line in path.read_text(errors="replace").splitlines()[-5:])


def test_killed_between_the_line_and_the_file(source, tmp_path):
    """The line is there, the new file is not: what is there is the old one, and known as such."""
    job = CopyJob(str(tmp_path / "out"))
    do(source, job)
    other = replace(job, settings=Settings(num_steps=3))
    with Journal(tmp_path / "out") as journal:
        journal.add("0.npy", other.key(items_of(source)[0]), "0" * 64)
    assert do(source, other)[0] == ALL


@pytest.mark.posix
def test_killed_at_random_moments(tmp_path):
    """No output is ever broken or done twice, and in the end all are there."""
    chance = random.Random(0)
    source = tmp_path / "in"
    source.mkdir()
    names = [f"{i:02}" for i in range(30)]
    for name in names:
        (source / f"{name}.txt").write_bytes(np.random.default_rng(int(name)).bytes(5000))
    expected = {f"{name}.npy": (source / f"{name}.txt").read_bytes() * Settings().num_steps for name in names}
    out, seen, interrupted = tmp_path / "out", {}, 0
    command = [sys.executable, slow_jobs.__file__, str(source), str(out), "0.03"]
    for _ in range(40):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as batch:
            lines = 0
            enough = chance.randrange(8)
            for lines, line in enumerate(batch.stdout, 1):
                assert line.split()[0] not in seen, "done twice"
                if lines > enough:
                    break
            time.sleep(chance.random() * 0.03)
            batch.kill()
        interrupted += batch.returncode == -signal.SIGKILL
        assert batch.returncode in (0, -signal.SIGKILL)
        for name, content in {p.name: p.read_bytes() for p in out.glob("*.npy")}.items():
            assert content == expected[name], "broken"
        now = stamps(out)
        assert seen.items() <= now.items(), "written again"
        seen = now
        if batch.returncode == 0:
            break
    assert interrupted >= 3
    assert contents(out) == expected


@pytest.mark.posix
def test_interrupted_from_the_keyboard(source, tmp_path):
    """All processes hear it; nothing is left behind, not even a temporary file."""
    out = tmp_path / "out"
    command = [sys.executable, slow_jobs.__file__, str(source), str(out), "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # Programs that a shell starts in the background ignore the keyboard, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as batch:  # fmt: skip
        while not list(out.glob("*.npy")):
            assert batch.poll() is None
            time.sleep(0.01)
        os.killpg(batch.pid, signal.SIGINT)
        said = batch.stderr.read()
    assert batch.returncode != 0
    assert said.count("KeyboardInterrupt") == 1
    done = contents(out)
    assert 0 < len(done) < 4
    assert do(source, CopyJob(str(out))) == (sorted({*ALL} - {*done}), [])


def test_workers_do_not_outlive_a_killed_batch(source, tmp_path):
    """While a worker lives it holds the lock, so a lock that can be taken means that all are gone."""
    command = [sys.executable, slow_jobs.__file__, str(source), str(tmp_path / "out"), "60"]
    with subprocess.Popen(command) as batch:
        while not list((tmp_path / "out").glob(".*part")):
            assert batch.poll() is None
            time.sleep(0.01)
        batch.kill()
    start = time.monotonic()
    with lock.exclusive(tmp_path / "out"):
        assert time.monotonic() - start < 10
