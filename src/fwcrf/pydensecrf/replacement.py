"""``install``: this package under pydensecrf's name, in the process and in its children."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

# Holds a package named pydensecrf, which imports this one.
ALIAS = str(Path(__file__).parent / "alias")
_PACKAGE = __name__.rpartition(".")[0]
_replaced: dict[str, ModuleType] = {}


def install(*, replace: bool = False) -> None:
    """Make ``import pydensecrf.densecrf`` and ``from pydensecrf.utils import ...`` import this package.

    Call it before the first import of pydensecrf, installed or not. Raises ``RuntimeError`` if the original
    is already imported, because modules that imported it keep it: two libraries under one name. With
    ``replace``, later imports get this package all the same.

    Children of the process, spawned, forked or other Python programs, import this package as well:
    ``sys.path`` and the environment variable ``PYTHONPATH`` begin with a folder that has an alias. Programs
    that ignore the variable (``python -I`` or ``-E``), get another environment, or have a folder pydensecrf
    beside their script do not; for them, install the distribution fwcrf-pydensecrf.

    >>> install(replace=True)
    >>> import pydensecrf.densecrf
    >>> pydensecrf.densecrf.DenseCRF2D.__module__
    'fwcrf.pydensecrf.densecrf'
    >>> uninstall()
    """
    own = modules()
    originals = {name: module for name, module in _imported().items() if module is not own.get(name)}
    if originals and not replace:
        name, module = next(iter(originals.items()))
        raise RuntimeError(
            f"{name} is already imported, from {getattr(module, '__file__', None)}; expected install() "
            "first. Call fwcrf.pydensecrf.install() before the first import of pydensecrf, or "
            "install(replace=True) to replace it for later imports only."
        )
    for name in originals:
        del sys.modules[name]
    _replaced.update(originals)
    sys.modules.update(own)
    # Spawned children copy sys.path, other programs read the variable.
    if ALIAS not in sys.path:
        sys.path.insert(0, ALIAS)
    folders = _python_path()
    if ALIAS not in folders:
        os.environ["PYTHONPATH"] = os.pathsep.join([ALIAS, *folders])


def uninstall() -> None:
    """Undo ``install``: later imports of pydensecrf get the original, if it is installed."""
    for name, module in modules().items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    sys.modules.update(_replaced)
    _replaced.clear()
    sys.path[:] = [folder for folder in sys.path if folder != ALIAS]
    folders = _python_path()
    if ALIAS in folders:
        folders.remove(ALIAS)
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        if not folders:
            del os.environ["PYTHONPATH"]


def modules() -> dict[str, ModuleType]:
    """The modules of this package by their names in pydensecrf, and in a clone of its repository."""
    own = {"": import_module(_PACKAGE)}
    own |= {f".{name}": import_module(f"{_PACKAGE}.{name}") for name in ("densecrf", "eigen", "utils")}
    return {
        f"{prefix}{name}": m for prefix in ("pydensecrf", "pydensecrf.pydensecrf") for name, m in own.items()
    }


def _python_path() -> list[str]:
    value = os.environ.get("PYTHONPATH", "")
    return value.split(os.pathsep) if value else []


def _imported() -> dict[str, ModuleType]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name == "pydensecrf" or name.startswith("pydensecrf.")
    }
