"""pydensecrf as fwcrf implements it: ``pydensecrf.densecrf`` is ``fwcrf.pydensecrf.densecrf``, and so on.

The distribution fwcrf-pydensecrf installs this package. ``fwcrf.pydensecrf.install()`` puts its folder first
on the path of child processes.
"""

import sys
from types import ModuleType


def _modules() -> dict[str, ModuleType]:
    """Modules of the drop-in by their names in pydensecrf."""
    try:
        import fwcrf.pydensecrf
    except ModuleNotFoundError as error:
        if error.name not in ("fwcrf", "fwcrf.pydensecrf"):
            raise
        raise ModuleNotFoundError(
            f"pydensecrf is an alias of fwcrf.pydensecrf ({__file__}), and {sys.executable} has no fwcrf: "
            "pip install fwcrf; or remove the alias by pip uninstall fwcrf-pydensecrf, or from PYTHONPATH.",
            name="fwcrf",
        ) from None
    return fwcrf.pydensecrf.modules()


# As in a clone of pydensecrf: pydensecrf.pydensecrf.densecrf.
sys.modules.update(_modules())
