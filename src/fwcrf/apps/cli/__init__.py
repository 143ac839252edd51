"""``fwcrf`` on the command line: one file per command.

A command imports its modules when it runs, so that --help is fast. Progress and messages go to standard
error, results to standard output or to files. The exit status is 0, 1 for a failure, 2 for wrong usage.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program ``fwcrf`` and exit with its status."""
    try:
        from fwcrf.apps.cli.app import run
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit("fwcrf: the command line needs typer, which is not installed: pip install 'fwcrf[cli]'")
    sys.exit(run())
