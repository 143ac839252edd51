"""Deeply nested files: every reader answers with a sentence that names the file."""

import json
import sys

import numpy as np
import pytest
import torch

from fwcrf.apps.batch.journal import NAME, Journal
from fwcrf.apps.batch.manifest import read_manifest
from fwcrf.apps.data.folder import Splits
from fwcrf.apps.experiments.kept import Kept
from fwcrf.apps.files import FileError, read_labels, read_scores
from fwcrf.apps.files.safe_json import DEEPEST, load_json
from fwcrf.apps.files.settings import read_settings
from fwcrf.apps.files.uai import read_uai
from fwcrf.apps.models.mobilenetv2 import published
from fwcrf.apps.models.weights import read_state
from fwcrf.apps.training import read_config
from fwcrf.apps.tuning.table import journal_lines

# Far beyond the recursion limit; near it, where parsing succeeds and later code may not; just too deep.
DEPTHS = (100_000, 900, 300, DEEPEST + 1)


def split(path):
    (path.parent / "train").mkdir()
    (path.parent / "train.txt").write_text("")
    return Splits(path.parent)


READERS = {
    "a.jsonl": read_manifest,
    "a.yaml": read_settings,
    "b.yaml": read_config,
    "classes.json": split,
    "kept.json": lambda path: Kept(path, {}),
    "net.json": lambda path: published(path.with_suffix(".safetensors")),
    "a.uai": read_uai,
    "a.npy": read_labels,
    "b.npy": read_scores,
    "a.pt": read_state,
    "a.safetensors": read_state,
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("form", ["lists", "mappings", "value"])
def test_a_sentence_with_the_name(tmp_path, name, depth, form):
    text = {
        "lists": "[" * depth + "]" * depth,
        "mappings": '{"a": ' * depth + "1" + "}" * depth,
        "value": '{"image": ' + "[" * depth + "]" * depth + "}",
    }[form]
    path = tmp_path / name
    start = b""
    if name.endswith(".npy"):
        start = b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little")
    if name.endswith(".safetensors"):
        start = len(text).to_bytes(8, "little")
    path.write_bytes(start + text.encode() + b"\n")
    with pytest.raises(FileError) as raised:
        READERS[name](path)
    assert str(path.parent) in str(raised.value)
    assert len(str(raised.value)) < 2000


def test_journals_skip_such_lines(tmp_path):
    line = b"[" * 100_000 + b"]" * 100_000 + b"\n"
    (tmp_path / NAME).write_bytes(line + b'{"output": [[]], "sha256": {}, "key": []}\n')
    with Journal(tmp_path) as journal:
        assert not any(journal.keys.values())
    huge = b'["a", [[1' + b"0" * 400 + b"], [1], [1]]]\n"
    damaged = b'["a", [[1, 2], [3], [4, 5]]]\n["a", [[], [], []]]\n["a", [[1], [1]]]\n["a", 3]\n'
    assert dict(journal_lines(line + b"[[1], [[1], [1], [1]]]\n" + huge + damaged)) == {}
    assert dict(journal_lines(b'["a", [[1], [1], [1]]]\n')) == {"a": [[1], [1], [1]]}


def test_wrappers_of_weights(tmp_path):
    saved = {"weight": torch.ones(2)}
    for _ in range(3):
        saved = {"model": saved}
    torch.save(saved, tmp_path / "a.pt")
    assert [*read_state(tmp_path / "a.pt")] == ["weight"]
    for _ in range(100):
        saved = {"model": saved}
    torch.save(saved, tmp_path / "b.pt")
    with pytest.raises(FileError, match=r"b\.pt"):
        read_state(tmp_path / "b.pt")
    saved = {}
    saved["model"] = saved
    torch.save(saved, tmp_path / "c.pt")
    with pytest.raises(FileError, match=r"c\.pt"):
        read_state(tmp_path / "c.pt")


def test_json_within_the_limits(tmp_path):
    text = "[" * DEEPEST + "]" * DEEPEST
    assert load_json(text, "a") == json.loads(text)
    with pytest.raises(FileError, match="a is nested more than 32 deep"):
        load_json(f"[{text}]", "a")
    with pytest.raises(FileError, match="a is not JSON: Exceeds the limit"):
        load_json("1" * (sys.get_int_max_str_digits() + 1), "a")
    np.testing.assert_array_equal(load_json("[1, 2]", "a"), [1, 2])
