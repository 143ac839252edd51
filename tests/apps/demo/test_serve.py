"""The program ``fwcrf demo``, up to where the server takes over."""

import signal
import socket
import subprocess
import sys
import webbrowser

import pytest
import uvicorn

from fwcrf.apps.demo import serve, solve


@pytest.fixture
def started(monkeypatch):
    """The addresses that were listened on, and those that were opened."""
    listening, opened = [], []

    def run(self, sockets):
        listening.extend(sock.getsockname() for sock in sockets)
        for sock in sockets:
            sock.close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(solve, "warm_up", lambda: None)
    return listening, opened


def test_this_machine_alone_by_default(started, fwcrf_command):
    status, out, err = fwcrf_command("demo", "--port", 0, "--no-browser")
    listening, opened = started
    assert (status, out) == (0, "")
    assert listening[0][0] == "127.0.0.1"
    assert err == f"fwcrf: the demo is at http://127.0.0.1:{listening[0][1]}/ (Ctrl-C ends it)\n"
    assert opened == []


def test_a_browser_is_opened(started, fwcrf_command):
    assert fwcrf_command("demo", "--port", 0)[0] == 0
    listening, opened = started
    assert opened == [f"http://127.0.0.1:{listening[0][1]}/"]


def test_other_machines_are_let_in_with_a_warning(started, fwcrf_command):
    status, _, err = fwcrf_command("demo", "--port", 0, "--no-browser", "--host", "0.0.0.0")
    assert status == 0
    assert "warning: listening on 0.0.0.0: whoever reaches this machine" in err
    assert started[0][0][0] == "0.0.0.0"


def test_a_port_that_is_taken(fwcrf_command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, err = fwcrf_command("demo", "--no-browser", "--port", taken.getsockname()[1])
    assert status == 1
    assert "cannot listen on 127.0.0.1" in err and "--port" in err


def test_on_windows_no_other_program_gets_the_port(monkeypatch):
    """Another option stands for the one that only Windows has."""
    monkeypatch.setattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_KEEPALIVE, raising=False)
    with serve._listen("127.0.0.1", 0) as listening:
        assert listening.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)


def test_warming_up_works():
    solve.warm_up()


@pytest.mark.posix
def test_an_interrupt_during_the_first_second_is_no_crash():
    """The thread that warms up must not outlive the interpreter: native code on it would abort."""
    command = [sys.executable, "-m", "fwcrf", "demo", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert "the demo is at" in server.stderr.readline()
        server.send_signal(signal.SIGINT)
        rest = server.communicate(timeout=60)[1]
    assert server.returncode in (0, 130), rest
