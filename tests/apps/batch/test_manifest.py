import json

import pytest

from fwcrf.apps.batch.manifest import Item, read_manifest
from fwcrf.apps.files import FileError


@pytest.fixture
def folders(tmp_path):
    """Two images with scores, one with truth; and files that are none of these."""
    for name in ("images/a.jpg", "images/b.c.png", "images/notes.txt", "images/.hidden.png",
                 "scores/a.npy", "scores/b.c.npz", "scores/readme.md", "truth/a.png"):  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def written(path, text):
    path.write_text(text)
    return path


def test_a_folder(folders):
    items = read_manifest(folders / "images", folders / "scores", ending=".npy")
    assert items == [
        Item(str(folders / "images/a.jpg"), str(folders / "scores/a.npy"), "a.npy"),
        Item(str(folders / "images/b.c.png"), str(folders / "scores/b.c.npz"), "b.c.npy"),
    ]


def test_what_is_missing_is_looked_for_all_the_same(folders):
    (folders / "scores/a.npy").unlink()
    items = read_manifest(folders / "images", folders / "scores", truth=folders / "truth")
    assert items[0].scores == str(folders / "scores/a.npy")
    assert [item.truth for item in items] == [str(folders / "truth" / n) for n in ("a.png", "b.c.png")]


def test_lists(tmp_path):
    rows = [
        {"image": "images/a.jpg", "scores": "s/a.npy"},
        {"image": "/far/b.nii.gz", "scores": "s/b.npy", "output": "deep/b.npy", "truth": "t/b.png"},
    ]
    expected = [
        Item(str(tmp_path / "images/a.jpg"), str(tmp_path / "s/a.npy"), "a.png"),
        Item("/far/b.nii.gz", str(tmp_path / "s/b.npy"), "deep/b.npy", str(tmp_path / "t/b.png")),
    ]
    lines = "\n".join(json.dumps(row) for row in rows)
    assert read_manifest(written(tmp_path / "a.jsonl", f"{lines}\n\n")) == expected
    table = "image,scores,output,truth\nimages/a.jpg,s/a.npy,,\n/far/b.nii.gz,s/b.npy,deep/b.npy,t/b.png\n"
    assert read_manifest(written(tmp_path / "a.csv", table)) == expected
    assert read_manifest(written(tmp_path / "b.csv", f"\ufeff{table}")) == expected


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "image\na.png\n", "line 2 has no 'scores'"),
        (
            "a.csv",
            "image,scores,color\na.png,a.npy,red\n",
            "line 2 has 'color': 'red'; expected the paths image",
        ),
        ("a.csv", "image,scores\na.png,a.npy,red\n", "line 2 has more cells than there are columns"),
        ("a.csv", "image,scores\n", "lists no images"),
        ("a.csv", "image,scores,output\na.png,a.npy,../b.png\n", "leaves the output folder"),
        ("a.csv", "image,scores,output\na.png,a.npy,/b.png\n", "leaves the output folder"),
        ("a.csv", "image,scores\na.png,a.npy\nb/a.jpg,b.npy\n", "would both be written to a.png"),
        ("a.csv", "image,scores,output\na,a,b.png\nc,c,./b.png\n", "would both be written to b.png"),
        ("a.jsonl", '{"image": "a.png"\n', "line 1 is not JSON"),
        ("a.jsonl", "[1, 2]\n", "line 1 is not an object"),
        ("a.jsonl", '{"image": "a.png", "scores": 3}\n', "line 1 has 'scores': 3; expected the paths"),
        ("a.txt", "a.png\n", r"expected \.csv or \.jsonl"),
        ("a.csv", "image,scores\n\0,b\n" + "x" * 200_000, "NUL character|cannot be read as CSV"),
    ],
)
def test_mistakes_in_a_list_are_explained(tmp_path, name, text, said):
    with pytest.raises(FileError, match=said):
        read_manifest(written(tmp_path / name, text))


def test_mistakes_with_folders_are_explained(folders):
    images, scores = folders / "images", folders / "scores"
    for arguments, said in (
        ((images,), "add the folder of scores"),
        ((images, folders / "nowhere"), "is not a folder"),
        ((folders / "truth.csv",), "cannot be read: No such file"),
        ((folders / "image", scores), "image cannot be read: No such file"),
        (
            (written(folders / "a.csv", "image,scores\na,b\n"), scores),
            "is a list, which names scores and truth",
        ),
    ):
        with pytest.raises(FileError, match=said):
            read_manifest(*arguments)
    (scores / "a.png").touch()
    with pytest.raises(FileError, match=r"a\.npy and a\.png belong to the same image"):
        read_manifest(images, scores)
    (folders / "empty").mkdir()
    with pytest.raises(FileError, match="has no images"):
        read_manifest(folders / "empty", folders / "truth")
