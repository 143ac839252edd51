"""The program starts quickly, without what it does not need, and says what went wrong."""

import subprocess
import sys

import pytest

COMMANDS = ["refine", "batch", "pseudo-labels", "tune", "map", "train", "eval", "bench", "demo"]


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(arguments):
    code = (
        "import sys, atexit; from fwcrf.apps.cli import main;"
        "heavy = {'torch', 'numpy', 'rich', 'yaml', 'PIL'};"
        "atexit.register(lambda: print('imported:', heavy & {*sys.modules})); main()"
    )
    done = run(code, *arguments)
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout.lower()
    assert done.stdout.endswith("imported: set()\n")


def test_help_is_quick():
    """In processor time, which others on the machine do not lengthen much; the least of several."""
    code = (
        "import os, atexit, sys; from fwcrf.apps.cli import main; "
        "atexit.register(lambda: print(sum(os.times()[:2]), file=sys.stderr)); main()"
    )
    assert min(float(run(code, "--help").stderr) for _ in range(5)) < 0.4


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "fwcrf", "--version"], capture_output=True, text=True, timeout=100
    )
    import fwcrf

    assert done.stdout.strip() == fwcrf.__version__


def test_without_typer():
    code = "import sys; sys.modules['typer'] = None; from fwcrf.apps.cli import main; main()"
    done = run(code, "--help")
    assert done.returncode == 1
    assert (
        done.stderr
        == "fwcrf: the command line needs typer, which is not installed: pip install 'fwcrf[cli]'\n"
    )


def test_every_command_is_listed(fwcrf_command):
    status, out, _ = fwcrf_command("--help")
    assert status == 0
    for name in COMMANDS:
        assert f"\n  {name} " in out


@pytest.mark.parametrize(
    "arguments", [["polish"], ["--loud"], ["refine"], ["batch", "--workers", "many", "a"]]
)
def test_bad_usage_has_status_2(fwcrf_command, arguments):
    status, out, err = fwcrf_command(*arguments)
    assert status == 2
    assert out == ""
    assert "Error: " in err


def test_failures_are_sentences_unless_a_traceback_is_asked_for(fwcrf_command, tmp_path):
    arguments = ("refine", tmp_path / "a.png", "-s", tmp_path / "a.npy", "-o", tmp_path / "b.png")
    assert fwcrf_command(*arguments) == (
        1, "", f"fwcrf: {tmp_path}/a.png cannot be read: No such file or directory.\n",
    )  # fmt: skip
    with pytest.raises(ValueError, match="cannot be read"):
        fwcrf_command("--traceback", *arguments)
