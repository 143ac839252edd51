"""Every block of Python and of commands in the README and the documentation runs, and answers as printed."""

import doctest
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {page: re.findall(r"```(python|console)\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]], ids=lambda page: page.name)
def test_blocks_run_from_top_to_bottom(page, tmp_path, monkeypatch, fwcrf_command):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    for language, block in BLOCKS[page]:
        if language == "python":
            exec(compile(block, str(page), "exec"), names)
            continue
        for command, answer in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            status, printed = carry_out(command, fwcrf_command)
            expected = re.search(r"# exit status (\d)", command)
            assert status == (int(expected[1]) if expected else 0), printed
            assert doctest.OutputChecker().check_output(answer, printed, LOOSELY), printed


def carry_out(command, fwcrf_command):
    """The exit status and what is printed; our own commands without a process of their own, for speed."""
    if command.startswith("fwcrf "):
        status, out, err = fwcrf_command(*shlex.split(command, comments=True)[1:])
        return status, err + out
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return done.returncode, done.stderr + done.stdout


def test_there_are_blocks_to_run():
    assert sum(map(len, BLOCKS.values())) >= 3
