"""Importing the package is quiet, and brings nothing that is not needed."""

import subprocess
import sys


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=100)


def test_import_without_warnings():
    done = run("-W", "error", "-c", "import fwcrf")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_optional_packages_are_not_imported():
    done = run("-c", "import sys, fwcrf; print([m for m in ('skimage', 'PIL', 'scipy') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr
