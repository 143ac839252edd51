"""``fwcrf bench``: how fast it is here."""

from __future__ import annotations

from typing import Any

import typer

# What follows the name of the command is for the benchmarks to read, --help included.
ANY: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def bench(context: typer.Context) -> None:
    """Time the library and its peers; `fwcrf bench --help` tells more."""
    from fwcrf.apps.bench.__main__ import main

    main(context.args)
