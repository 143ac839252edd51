"""Progress bar (on a terminal only) and warnings, on standard error."""

from __future__ import annotations

import logging
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[..., None]]:
    """Function ``advance(line, count)``: move the bar by ``count`` (1), print the line, if any, above it."""
    if not sys.stderr.isatty() or total == 0:
        yield lambda line=None, count=1: print(line, file=sys.stderr, flush=True) if line else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False, highlight=False)) as bar:
        task = bar.add_task(title, total=total)

        def advance(line: str | None = None, count: int = 1) -> None:
            if line:
                bar.console.print(line, soft_wrap=True)
            bar.advance(task, count)

        yield advance


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings. Of several that differ only in their numbers, print the first and a count."""
    alike = defaultdict(list)
    for message in warnings:
        alike[re.sub(r"[\d.e+-]*\d", "#", message)].append(message)
    for messages in alike.values():
        more = f" ({len(messages) - 1} more like this.)" if len(messages) > 1 else ""
        print(f"fwcrf: {messages[0]}{more}", file=sys.stderr)


@contextmanager
def printed_log(verbose: bool) -> Iterator[None]:
    """Print the library's log to standard error, if ``verbose``: the path that ran, and why."""
    log, handler = logging.getLogger("fwcrf"), logging.StreamHandler(sys.stderr)
    before = log.level
    if verbose:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
