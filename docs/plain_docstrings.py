"""Docstrings as Markdown, for mkdocs: examples and plain tables become blocks of code, ``<`` is kept."""

import re
from typing import Any

from griffe import Extension, Object

RULE = re.compile(r"=+(?: +=+)+")
CODE_OR_BRACKET = re.compile(r"(`+)(?:(?!\1).)+\1|<", re.DOTALL)


def plain(text: str) -> str:
    """The docstring in Markdown. Paragraphs that begin with ``>>>`` or with the rule of a table are fenced.

    Markdown would take a list after an example for a link, a table for text, and ``<x, P x>`` for a tag of
    HTML, which browsers do not show.
    """
    return "\n\n".join(filter(None, map(_paragraph, text.split("\n\n"))))


def _paragraph(text: str) -> str:
    first, *_ = lines = text.split("\n")
    if first.startswith(">>> ") or RULE.fullmatch(first):
        return f"```{'pycon' if first.startswith('>') else 'text'}\n{text}\n```"
    if all(line.startswith("    ") for line in lines):
        return text  # a block of code, also in Markdown
    if text.endswith("::"):
        text = text[:-1].lstrip(":")  # announces the block
    return CODE_OR_BRACKET.sub(lambda found: "&lt;" if found[0] == "<" else found[0], text)


class PlainDocstrings(Extension):
    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)
