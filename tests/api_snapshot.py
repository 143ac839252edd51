"""The public names and their signatures, as text.

``python tests/api_snapshot.py`` (``make snapshot``) writes it anew.

A change of the text is a change of what people rely on: it belongs in the changelog.
"""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PATH = Path(__file__).with_name("api_snapshot.txt")
# Packages that users import by name; for programs, the name that has always been understood.
MORE = (
    "batch",
    "data",
    "evaluation",
    "files",
    "models",
    "pydensecrf.densecrf",
    "pydensecrf.utils",
    "training",
    "tuning",
)


def snapshot() -> str:
    import fwcrf

    lines = [f"fwcrf.{name}" for name in fwcrf.__all__ if isinstance(getattr(fwcrf, name), ModuleType)]
    for name in fwcrf.__all__:
        value = getattr(fwcrf, name)
        if isinstance(value, ModuleType):
            lines += _module(value.__name__, value)
        else:
            lines += _described(f"fwcrf.{name}", value)
    for name in MORE:
        lines += _module(f"fwcrf.{name}", import_module(f"fwcrf.{name}"))
    return "\n".join(sorted({*lines})) + "\n"


def _module(called: str, module: ModuleType) -> Iterator[str]:
    """The exports of a module: its ``__all__``, or else the names that it defines."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
    for name in names:
        if not name.startswith("_"):
            yield from _described(f"{called}.{name}", getattr(module, name))


def _described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, type):
        kind = "enum " if issubclass(value, enum.Enum) else ""
        yield f"{name}{kind and ' ' + kind.strip()}{'' if kind else _signature(value)}"
        for owner in reversed(value.__mro__):
            if owner.__module__.startswith("fwcrf"):
                for member, found in vars(owner).items():
                    if not member.startswith("_"):
                        yield _member(f"{name}.{member}", found)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    elif not isinstance(value, ModuleType):
        yield name


def _member(name: str, value: Any) -> str:
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    return f"{name}{_signature(value)}" if inspect.isfunction(value) else name


def _signature(value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (ValueError, TypeError):
        return "(...)"
    # Names and defaults; annotations change with the version of Python that shows them.
    plain = [_plain(p) for p in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    default = parameter.default
    if default is not parameter.empty and not isinstance(default, bool | int | float | str | tuple | None):
        default = _Shown(type(default).__name__)
    return parameter.replace(annotation=parameter.empty, default=default)


class _Shown:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


if __name__ == "__main__":
    sys.path.insert(0, str(PATH.parent))
    PATH.write_text(snapshot())
    print(f"{PATH}: {len(PATH.read_text().splitlines())} names")
