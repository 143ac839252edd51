"""Clients that send half a request, or do not read: their connections end, and other visitors are served."""

import socket
import time
from contextlib import ExitStack

import httpx
import pytest
from demo_pages import FROM_HERE, png, served, two_halves

from fwcrf.apps.demo import app as demo_app
from fwcrf.apps.demo import connections, guard
from fwcrf.apps.demo.guard import HEADERS

HALF_A_HEADER = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
LIMIT = 20.0  # seconds in which something has to happen; the time-outs in these tests are far below


def half_a_body(session):
    headers = f"Host: 127.0.0.1\r\nX-Session: {session}\r\nContent-Length: 1000\r\n"
    return f"POST /api/solve HTTP/1.1\r\n{headers}\r\n{{".encode()


def opened(address, content=b""):
    host, _, port = address.removeprefix("http://").partition(":")
    sock = socket.create_connection((host, int(port)), timeout=LIMIT)
    sock.sendall(content)
    return sock


def begun(address):
    return httpx.post(f"{address}/api/session", headers=FROM_HERE, trust_env=False).json()["session"]


def rest(sock):
    """All that the server sends, up to the end of the connection."""
    found = b""
    try:
        while piece := sock.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("half", ["nothing", "header", "body", "unread body"])
def test_new_visitors_are_served_among_many_half_sent_requests(half):
    with served() as address, ExitStack() as stack:
        content = {
            "nothing": b"", "header": HALF_A_HEADER, "body": half_a_body(begun(address)),
            "unread body": half_a_body("nobody"),
        }[half]  # fmt: skip
        socks = [stack.enter_context(opened(address, content)) for _ in range(150)]
        answer = httpx.get(address, trust_env=False, timeout=LIMIT)
        assert answer.status_code == 200
        # The oldest were replaced, as many as there were too many; the others are within their time.
        for sock in socks[:40]:
            assert rest(sock) == b"" or half == "unread body"
        socks[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            socks[-1].recv(1) if half != "unread body" else socks[-1].recv(1 << 16) and socks[-1].recv(1)


@pytest.mark.parametrize("half", [b"", HALF_A_HEADER, b"\r\n", half_a_body("nobody")])
def test_headers_have_a_time(monkeypatch, half):
    monkeypatch.setattr(connections, "HEADERS_PATIENCE", 0.3)
    with served() as address, opened(address, half) as sock:
        start = time.monotonic()
        rest(sock)
        assert time.monotonic() - start < LIMIT / 2


def test_headers_that_come_byte_by_byte_have_the_same_time(monkeypatch):
    monkeypatch.setattr(connections, "HEADERS_PATIENCE", 0.3)
    with served() as address, opened(address, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n") as sock:
        start = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - start < LIMIT:
                sock.sendall(b"X: 1\r\n")
                time.sleep(0.05)


def test_a_second_request_has_the_same_time(monkeypatch):
    monkeypatch.setattr(connections, "HEADERS_PATIENCE", 0.5)
    with served() as address, opened(address) as sock:
        sock.sendall(b"GET /static/favicon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200")
        sock.sendall(HALF_A_HEADER)
        rest(sock)


@pytest.mark.parametrize("patience", ["PATIENCE", "LONGEST_UPLOAD"])
def test_bodies_have_a_time(monkeypatch, patience):
    """Between two parts, and for all of it; the answer has a sentence and the headers."""
    monkeypatch.setattr(demo_app, patience, 0.3)
    with served() as address, opened(address, half_a_body(begun(address))) as sock:
        sock.settimeout(0.05)
        start, answer = time.monotonic(), b""
        while b"}" not in answer and time.monotonic() - start < LIMIT:
            try:
                if patience == "LONGEST_UPLOAD" and not answer:
                    sock.sendall(b" ")
                answer += sock.recv(1 << 16)
            except TimeoutError:
                pass
    assert answer.startswith(b"HTTP/1.1 408") and b"the upload stopped" in answer
    for name in HEADERS:
        assert name.lower().encode() in answer.lower()


def test_an_answer_that_is_not_read_has_a_time(monkeypatch):
    monkeypatch.setattr(connections, "READING_PATIENCE", 0.3)
    with served() as address:
        session = begun(address)
        picture = png(two_halves(480, 480))  # noise: 300 kB
        headers = {"X-Session": session}
        url = f"{address}/api/picture"
        answer = httpx.post(f"{url}?name=a.png", headers=headers, content=picture, trust_env=False)
        assert answer.status_code == 200
        sock = opened(address)
        with sock:
            asked = f"GET /api/picture HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Session: {session}\r\n\r\n".encode()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(asked * 20)
            start = time.monotonic()
            with pytest.raises(ConnectionError):
                while time.monotonic() - start < LIMIT:
                    sock.sendall(b"\r\n")
                    time.sleep(0.05)


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"X" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_is_answered_with_the_headers(content, monkeypatch):
    monkeypatch.setattr(connections, "HEADERS_PATIENCE", 1.0)
    with served() as address, opened(address, content) as sock:
        answer = rest(sock)
    assert answer.startswith(b"HTTP/1.1 4")
    for name, value in HEADERS.items():
        assert f"{name}: {value}".lower().encode() in answer.lower()


def test_too_many_requests_are_refused_with_the_headers(monkeypatch):
    monkeypatch.setattr(guard, "MOST_REQUESTS", 2)
    with served() as address, ExitStack() as stack:
        content = half_a_body(begun(address))
        for _ in range(2):
            stack.enter_context(opened(address, content))
        until = time.monotonic() + LIMIT
        while (answer := httpx.get(address, trust_env=False)).status_code == 200 and time.monotonic() < until:
            time.sleep(0.01)
        assert answer.status_code == 503 and "busy" in answer.json()["error"]
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
