"""pydensecrf's Python interface on this library's filters: code written for pydensecrf runs unchanged.

``import fwcrf.pydensecrf.densecrf as dcrf`` instead of ``import pydensecrf.densecrf as dcrf`` is all there is
to change; ``install`` saves even that, and ``python -m fwcrf.pydensecrf script.py`` runs a script as it is.
docs/from-pydensecrf.md lists what is followed, what is refused, and what there is beyond.
"""

from __future__ import annotations

import sys
from types import ModuleType

from fwcrf.pydensecrf import densecrf, eigen, utils

__all__ = ["densecrf", "eigen", "install", "uninstall", "utils"]

_replaced: dict[str, ModuleType] = {}


def install(*, replace: bool = False) -> None:
    """Make ``import pydensecrf.densecrf`` and ``from pydensecrf.utils import ...`` resolve here.

    To be called before anything imports pydensecrf, whether it is installed or not. If the original is
    imported already this raises ``RuntimeError``, because code that holds it would keep it: two libraries
    under one name. With ``replace`` the imports from now on resolve here all the same.

    >>> install(replace=True)
    >>> import pydensecrf.densecrf
    >>> pydensecrf.densecrf.DenseCRF2D.__module__
    'fwcrf.pydensecrf.densecrf'
    >>> uninstall()
    """
    own = _modules()
    others = {name: module for name, module in _imported().items() if module is not own.get(name)}
    if others and not replace:
        name, module = next(iter(others.items()))
        raise RuntimeError(
            f"{name} is already imported, from {getattr(module, '__file__', None)}; expected to come first. "
            "Call fwcrf.pydensecrf.install() before the imports that lead to it, or install(replace=True) "
            "to leave it to those who have it and answer the imports from now on."
        )
    for name in others:
        del sys.modules[name]
    _replaced.update(others)
    sys.modules.update(own)


def uninstall() -> None:
    """Undo ``install``: later imports of pydensecrf find the original, if there is one."""
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
