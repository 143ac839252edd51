"""Text for terminals. In a module of its own, because the command line starts without numpy."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text in one line, without control characters: a terminal would obey control characters in a file name.

    >>> printable("a\\x1b[2Jb.png")
    'a?[2Jb.png'
    """
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
