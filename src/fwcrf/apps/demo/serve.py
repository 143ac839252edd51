"""The command ``fwcrf demo``: listen on a socket, serve the page, open a browser."""

from __future__ import annotations

import socket
import sys
import threading
import webbrowser
from typing import Any

from fwcrf.apps.demo.guard import is_loopback
from fwcrf.optional import needed


def serve(host: str = "127.0.0.1", port: int = 8420, *, browser: bool = True) -> None:
    """Serve the page until interrupted. Port 0 selects a free port."""
    needed("uvicorn", "demo")
    needed("starlette", "demo")
    from fwcrf.apps.demo.app import create_app
    from fwcrf.apps.demo.solve import warm_up

    listening = _listen(host, port)
    # Not a daemon: at the end of the interpreter, native code on such a thread would abort the process.
    threading.Thread(target=warm_up).start()
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    if not is_loopback(host):
        print(
            f"fwcrf: warning: listening on {host}: whoever reaches this machine can use the page, and "
            "data is not encrypted. Without --host only this machine can use it.",
            file=sys.stderr,
        )
    print(f"fwcrf: the demo is at {address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if browser:
        # The socket listens already, so early requests of the browser wait until the server runs.
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    server(create_app(host)).run(sockets=[listening])


def server(app: Any) -> Any:
    """The uvicorn server of an application. It runs with ``run(sockets=...)``."""
    import uvicorn

    from fwcrf.apps.demo.connections import HEADERS_PATIENCE, Connection

    config = uvicorn.Config(
        app, http=Connection, log_level="warning", access_log=False, lifespan="off", ws="none",
        server_header=False, proxy_headers=False, timeout_keep_alive=int(HEADERS_PATIENCE),
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    return uvicorn.Server(config)


def _listen(host: str, port: int) -> socket.socket:
    listening = None
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        # A port that was closed a moment ago is free. On Windows that option would let other programs
        # take a port in use; another one keeps it.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        listening.setsockopt(socket.SOL_SOCKET, option, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        if listening is not None:
            listening.close()
        raise OSError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}. Choose another port: "
            "--port, 0 for any free port."
        ) from error
    return listening
