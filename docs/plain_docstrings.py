"""Docstrings as the code has them, for mkdocs: examples and plain tables become blocks of code."""

import re
from typing import Any

from griffe import Extension, Object

RULE = re.compile(r"=+(?: +=+)+")


def fenced(text: str) -> str:
    """Paragraphs that begin with ``>>>`` or with the rule of a table, in fences.

    Markdown would take a list after an example for a link, and nothing for a table.
    """
    paragraphs = []
    for paragraph in text.split("\n\n"):
        first = paragraph.split("\n", 1)[0]
        language = "pycon" if first.startswith(">>> ") else "text" if RULE.fullmatch(first) else None
        paragraphs.append(f"```{language}\n{paragraph}\n```" if language else paragraph)
    return "\n\n".join(paragraphs)


class PlainDocstrings(Extension):
    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
