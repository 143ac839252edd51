"""Progress bar (on a terminal only), messages and warnings, on standard error."""

from __future__ import annotations

import logging
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from fwcrf.apps.cli.flags import in_flags
from fwcrf.apps.printable import printable


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[..., None]]:
    """Function ``advance(line, count)``: move the bar by ``count`` (1), print the line, if any, above it."""
    if not sys.stderr.isatty() or total == 0:
        yield lambda line=None, count=1: say(line) if line else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False, highlight=False)) as bar:
        task = bar.add_task(title, total=total)

        def advance(line: str | None = None, count: int = 1) -> None:
            if line:
                bar.console.print(printable(line), soft_wrap=True)
            bar.advance(task, count)

        yield advance


def say(line: str) -> None:
    """Print a line to standard error, without control characters, which names of files may contain."""
    print(printable(line), file=sys.stderr, flush=True)


def print_warnings(warnings: Iterable[tuple[str, str]]) -> None:
    """Print pairs of (file, warning). Of several that differ only in their numbers, the first and a count."""
    alike = defaultdict(list)
    for file, message in warnings:
        alike[re.sub(r"[\d.e+-]*\d", "#", message)].append(f"{file}: {in_flags(message)}")
    for messages in alike.values():
        more = f" ({len(messages) - 1} more like this.)" if len(messages) > 1 else ""
        say(f"fwcrf: {messages[0]}{more}")


@contextmanager
def printed_log(verbose: bool) -> Iterator[None]:
    """Print the log of the library to standard error: warnings, and if ``verbose`` the path and changes."""
    log, handler = logging.getLogger("fwcrf"), logging.StreamHandler(sys.stderr)
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
