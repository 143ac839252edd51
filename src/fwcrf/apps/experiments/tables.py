"""Tables of named columns as CSV, HTML and Markdown."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Mapping, Sequence

Cell = str | int | float | None
Row = Mapping[str, Cell]


def as_csv(rows: Sequence[Row]) -> bytes:
    """The table as CSV, numbers with all digits."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_html(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(shown(cell))}</td>" for cell in row.values()) + "</tr>\n"
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n{body}</table>\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """
    >>> print(as_markdown([{"": "MF", "mIoU": 81.234}]), end="")
    |  | mIoU |
    |---|---:|
    | MF | 81.23 |
    """
    names = list(rows[0])
    lines = [" | ".join(names), "|".join(["---", *["---:"] * (len(names) - 1)])]
    text = f"| {lines[0]} |\n|{lines[1]}|\n"
    return text + "".join("| " + " | ".join(shown(cell) for cell in row.values()) + " |\n" for row in rows)


def shown(cell: Cell) -> str:
    """The cell as text, a float with two decimals.

    >>> shown(1533.009834), shown(None), shown(20), shown("MF")
    ('1533.01', '', '20', 'MF')
    """
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
