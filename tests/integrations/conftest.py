"""The build of torchvision for CUDA beside a torch without CUDA, as `make integrations` has it.

Its library cannot be loaded there, so that two operators are missing for which it registers shapes when it is
imported. Nothing here calls them: transformers' processors of images use its functions on tensors only.
"""

from importlib.util import find_spec
from pathlib import Path

import torch


def pytest_configure():
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    try:
        for library in Path(spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float t) -> Tensor")
