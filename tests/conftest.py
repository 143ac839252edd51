"""Settings shared by all tests; its place also puts ``helpers`` on the path."""

import warnings

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("fwcrf", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("fwcrf")


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
