"""What is said on standard error while something goes on: a bar, where that is a terminal, and warnings."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """``advance(line, count)``: ``count`` more (1) are done; print the line, if there is one, above."""
    if not sys.stderr.isatty() or total == 0:
        yield lambda line=None, count=1: print(line, file=sys.stderr, flush=True) if line else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False, highlight=False)) as bar:
        task = bar.add_task(what, total=total)

        def advance(line: str | None = None, count: int = 1) -> None:
            if line:
                bar.console.print(line, soft_wrap=True)
            bar.advance(task, count)

        yield advance


def say(warnings: Iterable[str]) -> None:
    """Of warnings that differ in their numbers alone, one for all."""
    alike = defaultdict(list)
    for message in warnings:
        alike[re.sub(r"[\d.e+-]*\d", "#", message)].append(message)
    for messages in alike.values():
        more = f" (The same of {len(messages) - 1} more.)" if len(messages) > 1 else ""
        print(f"fwcrf: {messages[0]}{more}", file=sys.stderr)
