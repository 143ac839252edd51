"""pydensecrf's Python interface, implemented with this library's filters.

Change ``import pydensecrf.densecrf as dcrf`` to ``import fwcrf.pydensecrf.densecrf as dcrf``. Three ways make
this change unnecessary: the distribution fwcrf-pydensecrf, which provides ``pydensecrf``; ``install``; and
``python -m fwcrf.pydensecrf script.py``, which runs an unchanged script. docs/from-pydensecrf.md lists the
reproduced quirks, the refused arguments and the extensions.
"""

from __future__ import annotations

import sys
from types import ModuleType

from fwcrf.pydensecrf import densecrf, eigen, utils
from fwcrf.pydensecrf.replacement import install, modules, uninstall

__all__ = ["densecrf", "eigen", "install", "modules", "uninstall", "utils"]

# `import pydensecrf.pydensecrf.densecrf as dcrf` of clones looks for this name.
pydensecrf: ModuleType = sys.modules[__name__]
