"""Settings shared by all tests; its place also puts ``helpers`` on the path."""

import sys
import warnings

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("fwcrf", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("fwcrf")

# Marks of tests that a system cannot run, and the reason that is shown.
ELSEWHERE = {
    "posix": (sys.platform == "win32", "Windows has no fork, and other signals, links and lengths of paths"),
    "linux": (sys.platform != "linux", "needs /proc, devices, mounts or limits of memory as Linux has them"),
}


def pytest_collection_modifyitems(items):
    for item in items:
        for mark, (absent, reason) in ELSEWHERE.items():
            if absent and item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def num_threads():
    """``num_threads(k)`` sets torch's number of threads for the rest of the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def fwcrf_command(capsys, monkeypatch):
    """``fwcrf_command("refine", ...)`` runs a command in this process: exit status, stdout, stderr."""
    from fwcrf.apps.cli.app import run

    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.delenv("FWCRF_TRACEBACK", raising=False)

    def command(*arguments):
        status = run([str(a) for a in arguments])
        return status, *capsys.readouterr()

    return command
