"""Import of optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(module: str, extra: str) -> Any:
    """The module. Raises ModuleNotFoundError with the pip command if its package is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(
            f"{error.name} is needed for this and is not installed: pip install 'fwcrf[{extra}]'",
            name=error.name,
        ) from error
