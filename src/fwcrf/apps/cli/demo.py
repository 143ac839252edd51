"""``fwcrf demo``: a page to try it on."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 8420,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Address to listen on. Others than 127.0.0.1 let other machines in, without encryption.",
        ),
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    """A page on this machine: draw on a picture, move sliders, see labels and energies.

    Needs no network. Ends with Ctrl-C.
    """
    from fwcrf.apps.demo.serve import serve

    serve(host, port, browser=not no_browser)
