"""YAML as data: plain values, nothing constructed, and no more of them than the text is long."""

from __future__ import annotations

from typing import Any

from fwcrf.optional import needed
from fwcrf.storage.errors import FileError

LARGEST = 1 << 20


def load_yaml(text: bytes | str, source: str, extra: str) -> Any:
    """What a text holds; ``source`` is named in messages, ``extra`` is what to install where YAML is missing.

    Aliases are refused: a few lines of them stand for more values than there is memory for, or for a list
    that holds itself.
    """
    yaml = needed("yaml", extra)
    if len(text) > LARGEST:
        raise FileError(f"{source} is larger than {LARGEST} bytes; expected settings, a few lines.")

    class Plain(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                name = self.peek_event().anchor
                raise FileError(f"{source} has the alias *{name}; expected values written out.")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Plain)
    except FileError:
        raise
    # Beside YAMLError, what the constructors of numbers and dates raise: ValueError, IndexError, and more.
    except Exception as error:
        raise FileError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
