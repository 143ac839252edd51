"""One call runs through a limited number of files and functions: a reader has to follow it."""

import pytest
import walk
from walk import WALKS, Walk, called, measured

# Upper limits, to be lowered whenever the walk gets shorter, and never raised.
LIMITS = {
    "refine": Walk(files=22, functions=205, calls=560, changes=120),
    "layer": Walk(files=18, functions=175, calls=440, changes=100),
}


@pytest.mark.parametrize("name", WALKS)
def test_a_call_stays_within_its_limits(name):
    found = measured(called(WALKS[name]()))
    longer = {
        field: (value, limit)
        for field, value, limit in zip(Walk._fields, found, LIMITS[name], strict=True)
        if value > limit
    }
    assert not longer, f"{name} takes a longer walk (found, limit): {longer}; see tests/walk.py --files"


def test_a_walk_counts_files_functions_calls_and_changes():
    calls = [("a.py", "f"), ("a.py", "g"), ("b.py", "f"), ("a.py", "f")]
    assert measured(calls) == Walk(files=2, functions=3, calls=4, changes=2)


def test_a_walk_leaves_out_first_calls_and_code_of_other_packages(monkeypatch, tmp_path):
    module = tmp_path / "ours.py"
    monkeypatch.setattr(walk, "PACKAGE", tmp_path)
    namespace = {"firsts": []}
    source = (
        "def first(): pass\ndef run():\n    firsts or firsts.append(first())\n    again()\ndef again(): pass"
    )
    exec(compile(source, str(module), "exec"), namespace)
    assert [name for _, name in called(namespace["run"])] == ["run", "again"]
