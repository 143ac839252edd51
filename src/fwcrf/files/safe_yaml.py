"""YAML as data: plain values, nothing constructed, and no more of them than the text is long."""

from __future__ import annotations

from typing import Any

from fwcrf.files.errors import FileError
from fwcrf.files.needs import needed

LARGEST = 1 << 20


def load_yaml(text: bytes | str, source: str, extra: str) -> Any:
    """What a text holds; ``source`` is named in messages, ``extra`` is what to install where YAML is missing.

    Aliases are refused: a few lines of them stand for more values than there is memory for, or for a list
    that holds itself.
    """
    yaml = needed("yaml", extra)
    if len(text) > LARGEST:
        raise FileError(f"{source} is larger than {LARGEST} bytes; expected settings, a few lines.")
    try:
        for token in yaml.scan(text, yaml.SafeLoader):
            if isinstance(token, yaml.AliasToken):
                raise FileError(f"{source} has the alias *{token.value}; expected values written out.")
        return yaml.safe_load(text)
    except FileError:
        raise
    # Beside YAMLError, what the constructors of numbers and dates raise: ValueError, IndexError, and more.
    except Exception as error:
        raise FileError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
