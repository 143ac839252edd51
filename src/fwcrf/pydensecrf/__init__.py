"""pydensecrf's Python interface, implemented with this library's filters.

Change ``import pydensecrf.densecrf as dcrf`` to ``import fwcrf.pydensecrf.densecrf as dcrf``. ``install``
makes this change unnecessary, and ``python -m fwcrf.pydensecrf script.py`` runs an unchanged script.
docs/from-pydensecrf.md lists the reproduced quirks, the refused arguments and the extensions.
"""

from __future__ import annotations

import sys
from types import ModuleType

from fwcrf.pydensecrf import densecrf, eigen, utils

__all__ = ["densecrf", "eigen", "install", "uninstall", "utils"]

_replaced: dict[str, ModuleType] = {}


def install(*, replace: bool = False) -> None:
    """Make ``import pydensecrf.densecrf`` and ``from pydensecrf.utils import ...`` import this package.

    Call it before the first import of pydensecrf, installed or not. Raises ``RuntimeError`` if the original
    is already imported, because modules that imported it keep it: two libraries under one name. With
    ``replace``, later imports get this package all the same.

    >>> install(replace=True)
    >>> import pydensecrf.densecrf
    >>> pydensecrf.densecrf.DenseCRF2D.__module__
    'fwcrf.pydensecrf.densecrf'
    >>> uninstall()
    """
    own = _modules()
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


def uninstall() -> None:
    """Undo ``install``: later imports of pydensecrf get the original, if it is installed."""
    for name, module in _modules().items():
        if sys.modules.get(name) is module:
            del sys.modules[name]
    sys.modules.update(_replaced)
    _replaced.clear()


def _modules() -> dict[str, ModuleType]:
    return {
        "pydensecrf": sys.modules[__name__],
        "pydensecrf.densecrf": densecrf,
        "pydensecrf.eigen": eigen,
        "pydensecrf.utils": utils,
    }


def _imported() -> dict[str, ModuleType]:
    return {
        name: module
        for name, module in sys.modules.items()
        if name == "pydensecrf" or name.startswith("pydensecrf.")
    }
