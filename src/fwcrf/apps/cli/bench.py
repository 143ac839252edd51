"""``fwcrf bench``: benchmarks on this machine."""

from __future__ import annotations

from typing import Any

import typer

# The benchmarks parse all arguments after the command's name, --help included.
ANY: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def bench(context: typer.Context) -> None:
    """Time this library and comparable ones. `fwcrf bench --help` lists the parts."""
    from fwcrf.apps.bench.__main__ import main

    main(context.args)
