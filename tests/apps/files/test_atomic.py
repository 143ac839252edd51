import os
import subprocess
import sys
from pathlib import Path

import pytest

from fwcrf.apps.files import FileError
from fwcrf.apps.files.atomic import check_writable, is_special, remove_leftovers, staging, writing

WRITER = """
import sys
from fwcrf.apps.files.atomic import writing
with writing(sys.argv[1]) as file:
    file.write(b"new" * 1000)
    file.flush()
    print("half way", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_written_and_nothing_else_remains(tmp_path):
    with writing(tmp_path / "a") as file:
        file.write(b"one")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["a"]


def test_the_old_file_stays_when_writing_fails(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half way"), writing(tmp_path / "a") as file:
        file.write(b"new")
        raise RuntimeError("half way")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_the_old_file_stays_when_the_writer_is_killed(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "a")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout.readline() == b"half way\n"
        writer.kill()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 2
    assert remove_leftovers(tmp_path) == 1
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.posix
def test_a_link_keeps_pointing_where_it_did(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "a")
    with writing(tmp_path / "link") as file:
        file.write(b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "a").read_bytes() == b"one"


def test_the_usual_permissions(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    with writing(tmp_path / "a"):
        pass
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.posix
def test_names_of_any_length(tmp_path):
    path = tmp_path / ("n" * 255)
    with writing(path) as file:
        file.write(b"one")
    assert path.read_bytes() == b"one"


def test_what_can_be_written_passes_and_leaves_no_trace(tmp_path):
    assert check_writable(tmp_path / "a") == tmp_path / "a"
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_written_is_said_before(tmp_path):
    (tmp_path / "file").touch()
    for path, said in (
        (tmp_path, "is a folder"),
        (tmp_path / "missing" / "a.png", "there is no folder .*missing; make it first"),
        (tmp_path / "file" / "a.png", "there is no folder"),
    ):
        with pytest.raises(FileError, match=said):
            check_writable(path)


@pytest.mark.linux
def test_a_folder_without_room_for_files_is_said_before():
    with pytest.raises(FileError, match="cannot be written"):
        check_writable("/proc/a.png")


@pytest.mark.linux
def test_special_files_are_written_in_place(tmp_path):
    """No rename, which would replace a device by a file; no temporary file in its folder."""
    before = os.stat("/dev/null")
    assert is_special("/dev/null") and check_writable("/dev/null") == Path("/dev/null")
    (tmp_path / "link").symlink_to("/dev/null")
    for path in ("/dev/null", tmp_path / "link"):
        with writing(path) as file:
            file.write(b"one")
    assert (os.stat("/dev/null").st_rdev, os.stat("/dev/null").st_ino) == (before.st_rdev, before.st_ino)
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        with writing(check_writable(tmp_path / "pipe")) as file:
            file.write(b"one")
        assert reader.stdout.read() == b"one"
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]
    with (
        pytest.raises(FileError, match="/dev/full cannot be written: No space"),
        writing("/dev/full") as file,
    ):
        file.write(b"one")
    assert not is_special(tmp_path) and not is_special(tmp_path / "absent")


def test_staged_files_are_removed_on_error(tmp_path):
    with pytest.raises(ZeroDivisionError), staging(tmp_path):
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []
