"""A batch writes into its output folder and nowhere else; names in lists and links cannot lead it out."""

import os
from pathlib import Path

import pytest
from slow_jobs import CopyJob

from fwcrf.apps.batch import lock
from fwcrf.apps.batch.journal import NAME
from fwcrf.apps.batch.local import attempt
from fwcrf.apps.batch.manifest import Item, read_manifest
from fwcrf.apps.batch.run import run
from fwcrf.apps.files import FileError


@pytest.fixture
def place(tmp_path):
    """An output folder, a folder that is none of its business, and an input."""
    for name in ("out", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "elsewhere" / "kept.npy").write_text("mine")
    (tmp_path / "elsewhere" / ".0.fwcrf-part").write_text("mine")
    (tmp_path / "in.txt").write_text("content")
    return tmp_path


def do(place, output, folder="out", **options):
    item = Item(str(place / "in.txt"), str(place / "in.txt"), output)

    def inline(job, items, *, num_workers):
        return ((i, attempt(job, item)) for i, item in enumerate(items))

    return list(run([item], CopyJob(str(place / folder)), num_workers=1, engine=inline, **options))


def assert_untouched(place):
    assert {p.name: p.read_text() for p in (place / "elsewhere").iterdir()} == {
        "kept.npy": "mine", ".0.fwcrf-part": "mine",
    }  # fmt: skip


@pytest.mark.posix
@pytest.mark.parametrize("target", ["kept.npy", "absent.npy"])
def test_a_link_in_place_of_an_output(place, target):
    link = place / "out" / "a.npy"
    link.symlink_to(place / "elsewhere" / target)
    with pytest.raises(FileError, match=r"a\.npy exists already and was not written by a batch"):
        do(place, "a.npy")
    assert link.is_symlink()
    [outcome] = do(place, "a.npy", overwrite=True)
    assert outcome.error is None
    assert not link.is_symlink() and link.read_text().startswith("content")
    assert_untouched(place)


@pytest.mark.posix
def test_a_link_that_appears_during_the_work(place):
    def meanwhile(plan):
        (place / "out" / "a.npy").symlink_to(place / "elsewhere" / "kept.npy")

    do(place, "a.npy", planned=meanwhile)
    assert_untouched(place)


@pytest.mark.posix
def test_a_link_to_an_output_of_the_batch_is_no_output(place):
    do(place, "a.npy")
    (place / "out" / "b.npy").symlink_to("a.npy")
    with pytest.raises(FileError, match=r"b\.npy exists already"):
        do(place, "b.npy")


@pytest.mark.posix
@pytest.mark.parametrize("output", ["sub/a.npy", "sub/deeper/a.npy"])
@pytest.mark.parametrize("target", ["../elsewhere", "../absent", "."])
def test_a_linked_folder(place, output, target):
    (place / "out" / "sub").symlink_to(target)
    with pytest.raises(FileError, match=r"out/sub is a symbolic link.*; remove it"):
        do(place, output, overwrite=True)
    assert_untouched(place)
    assert not (place / "absent").exists()


@pytest.mark.posix
@pytest.mark.parametrize("name", [NAME, lock.NAME])
def test_links_in_place_of_files_of_the_batch(place, name):
    (place / "out" / name).symlink_to(place / "elsewhere" / "absent")
    with pytest.raises(FileError, match=rf"{name} .*symbolic link"):
        do(place, "a.npy")
    assert_untouched(place)


@pytest.mark.posix
def test_the_folder_itself_may_be_a_link(place):
    (place / "link").symlink_to("out")
    assert do(place, "sub/a.npy", folder="link")[0].error is None
    assert (place / "out" / "sub" / "a.npy").read_text().startswith("content")


@pytest.mark.parametrize("output", ["../elsewhere/a.npy", "sub/../../a.npy", "/tmp/a.npy", "a\0b.npy"])
def test_names_that_leave_the_folder(place, output):
    before = sorted(os.listdir(place))
    with pytest.raises(FileError, match=r"leaves the output folder|NUL"):
        do(place, output)
    assert sorted(os.listdir(place)) == before
    assert_untouched(place)


def test_an_ending_that_leaves_the_folder(place):
    (place / "images").mkdir()
    (place / "images" / "a.png").touch()
    with pytest.raises(FileError, match="leaves the output folder"):
        read_manifest(place / "images", place / "images", ending="/../../elsewhere/a.png")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"image": "a\\u0000b.png", "scores": "a.npy"}\n'),
        ("a.jsonl", '{"image": "a.png", "scores": "a.npy", "output": "a\\u0000.png"}\n'),
        ("a.jsonl", '{"image": "a.png", "scores": "a.npy", "output": "b/../../a.png"}\n'),
        ("a.csv", "image,scores,output\na.png,a.npy,b/../../a.png\n"),
    ],
)
def test_names_in_lists(tmp_path, name, text):
    Path(tmp_path / name).write_text(text)
    with pytest.raises(FileError, match=rf"{name}, line \d: .*(leaves the output folder|NUL)"):
        read_manifest(tmp_path / name)
