"""fwcrf: dense conditional random fields by regularized Frank-Wolfe."""

import torch as _torch  # noqa: F401  before the native module, so that both share one OpenMP runtime

from fwcrf import kernels

__all__ = ["kernels"]
__version__ = "0.1.0.dev0"
