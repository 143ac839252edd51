"""Use the native module of a wheel with numpy alone: use_core.py WHEEL. For a Python without torch."""

import importlib.util
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np


def load(wheel, folder):
    """The module ``_core`` of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if Path(each).name.startswith("_core."))
        path = archive.extract(name, folder)
    spec = importlib.util.spec_from_file_location("_core", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(wheel):
    with tempfile.TemporaryDirectory() as folder:
        core = load(wheel, folder)
        rng = np.random.default_rng(0)
        for dtype, error in ((np.float32, 1e-6), (np.float64, 1e-14)):
            for labels in (1, 2, 7, 21, 150):
                v = rng.normal(size=(1000, labels)).astype(dtype)
                got = np.empty_like(v)
                core.softmax(v, 2.0, got, 2)
                expected = np.exp(2 * v - (2 * v).max(1, keepdims=True))
                expected /= expected.sum(1, keepdims=True)
                assert np.abs(got - expected).max() < error, (dtype, labels, np.abs(got - expected).max())
        print(f"{Path(wheel).name}: softmax agrees on Python {sys.version.split()[0]}, {core.isa()}")


if __name__ == "__main__":
    main(sys.argv[1])
