"""``fwcrf demo``: an interactive page in the browser."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 8420,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Any but 127.0.0.1 lets other machines connect, unencrypted.",
        ),
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    """Open an interactive page on this machine.

    Draw on a picture, move sliders, see labels and energies. Needs no network. Ctrl-C ends it.
    """
    from fwcrf.apps.demo.serve import serve

    serve(host, port, browser=not no_browser)
