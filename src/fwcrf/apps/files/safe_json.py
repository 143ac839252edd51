"""Safe JSON: bounded nesting, no name twice in a mapping, and one kind of exception."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fwcrf.apps.files.errors import FileError

# Code that walks values recursively stays far below Python's recursion limit.
DEEPEST = 32


def load_json(text: bytes | str, source: str) -> Any:
    """Parsed JSON. Error messages name ``source``."""
    try:
        values = json.loads(text, object_pairs_hook=_mapping)
    except RecursionError:
        raise FileError(too_deep(source)) from None
    # JSONDecodeError, UnicodeDecodeError, a name twice, whole numbers of thousands of digits.
    except ValueError as error:
        raise FileError(f"{source} is not JSON: {error}.") from error
    return check_depth(values, source)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the name {name[:40]!r} occurs twice in a mapping")
        values[name] = value
    return values


def check_depth(values: Any, source: str) -> Any:
    """Return ``values``; raise FileError if lists and mappings are nested more than ``DEEPEST`` deep."""
    level = [values]
    for _ in range(DEEPEST + 1):
        level = [value for value in level if isinstance(value, Mapping | list | tuple)]
        if not level:
            return values
        level = [
            part for value in level for part in (value.values() if isinstance(value, Mapping) else value)
        ]
    raise FileError(too_deep(source))


def too_deep(source: str) -> str:
    """Message about a file of too many levels."""
    return f"{source} is nested more than {DEEPEST} deep; expected lists and mappings of a few levels."
