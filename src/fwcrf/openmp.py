"""One OpenMP runtime for the native core and for torch, whichever is loaded first."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec


def share_runtime() -> None:
    """Load torch's OpenMP runtime, to be called before the native core is loaded.

    On Linux the library alone is loaded, from torch's folder and without torch, which takes seconds to
    import: the core then finds its ``libgomp.so.1`` loaded, and so does torch later. Elsewhere torch itself
    is imported.
    """
    if "torch" in sys.modules:
        return
    if sys.platform != "linux":
        import_module("torch")
        return
    import ctypes

    spec = find_spec("torch")
    folder = os.path.join(os.path.dirname(spec.origin), "lib") if spec and spec.origin else ""
    if os.path.exists(library := os.path.join(folder, "libgomp.so.1")):
        ctypes.CDLL(library)
