"""What is said while a command runs."""

import os
import subprocess
import sys

import pytest

from fwcrf.apps.cli.progress import print_warnings, progress

CODE = """
from fwcrf.apps.cli.progress import progress
with progress("refining", 3) as advance:
    advance()
    advance("failed: [a].png")
    advance(None, 1)
"""


@pytest.mark.posix
def test_a_bar_on_a_terminal():
    import pty

    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], stderr=theirs, stdout=subprocess.PIPE, env=environment
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 1 << 16)
        except OSError:
            break
    os.close(ours)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"refining" in said
    assert b"3/3" in said
    assert b"failed: [a].png" in said


def test_lines_alone_elsewhere(capsys):
    with progress("refining", 3) as advance:
        advance()
        advance("failed: a.png")
        advance(None, 1)
    assert capsys.readouterr() == ("", "failed: a.png\n")
    assert "rich" not in done_without_a_terminal()


def done_without_a_terminal():
    code = f"{CODE}\nimport sys; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()


def test_warnings_that_differ_in_numbers_are_said_once(capsys):
    print_warnings(
        [
            ("a.npy", "sums to 0.5 ... 1.25, not 1"),
            ("b\x1b[2J.npy", "something else"),
            ("c.npy", "sums to 2e-3 ... 7, not 1"),
            ("d.npy", "something else"),
        ]
    )
    assert capsys.readouterr().err.splitlines() == [
        "fwcrf: a.npy: sums to 0.5 ... 1.25, not 1 (1 more like this.)",
        "fwcrf: b?[2J.npy: something else (1 more like this.)",
    ]
