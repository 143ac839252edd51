"""The public interface is what it was, or the change is meant."""

import difflib

from api_snapshot import PATH, snapshot


def test_public_names_and_signatures():
    expected, found = PATH.read_text().splitlines(), snapshot().splitlines()
    changed = [
        line
        for line in difflib.unified_diff(expected, found, lineterm="", n=0)
        if line[:2] not in ("--", "++", "@@")
    ]
    assert not changed, "\n".join(
        [
            "the public interface has changed; if that is meant: make snapshot, and a line in CHANGELOG.md",
            *changed,
        ]
    )
