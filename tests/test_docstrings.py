"""Examples in docstrings give what they say."""

import doctest
import importlib
import os
import pkgutil

import pytest

import fwcrf

MODULES = [m.name for m in pkgutil.walk_packages(fwcrf.__path__, "fwcrf.") if not m.name.endswith("__main__")]
OTHER_SYSTEM = "lock_posix" if os.name == "nt" else "lock_windows"
WITH_EXAMPLES = (
    "fwcrf.features",
    "fwcrf.kernels.exact",
    "fwcrf.kernels.kernel",
    "fwcrf.torch_ops.simplex",
)


@pytest.mark.parametrize("name", ["fwcrf", *MODULES])
def test_examples(name):
    if name.endswith("triton"):
        pytest.importorskip("triton", reason="triton is not installed: pip install 'fwcrf[gpu]'")
    if name == "fwcrf.integrations.napari._widget":
        pytest.skip("make integrations imports it, with Qt")
    if name.endswith(OTHER_SYSTEM):
        pytest.skip("the module of another system: the lock of this one is imported")
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    if name in WITH_EXAMPLES:
        assert results.attempted > 0
