"""Examples in docstrings give what they say."""

import doctest
import importlib
import pkgutil

import pytest

import fwcrf

MODULES = [m.name for m in pkgutil.walk_packages(fwcrf.__path__, "fwcrf.") if not m.name.endswith("__main__")]
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
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    if name in WITH_EXAMPLES:
        assert results.attempted > 0
