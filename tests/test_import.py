"""Importing the package is quiet and quick, and brings nothing that is not needed."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fwcrf

SOURCE = Path(fwcrf.__file__).parent


def run(*arguments):
    # Compiled modules are kept, as they are for everyone who has installed the package.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=kept)


def answer(code):
    done = run("-W", "error", "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_import_is_quiet_and_brings_neither_torch_nor_numpy():
    assert answer("import sys, fwcrf; print({'torch', 'numpy'} & {*sys.modules})") == "set()"


@pytest.fixture(scope="module")
def modules():
    """What is imported with all names, in this order, and without a warning."""
    return answer("import sys; from fwcrf import *; print(*sys.modules)").split()


def test_optional_packages_are_not_imported(modules):
    extras = {"skimage", "PIL", "scipy", "yaml", "rich", "typer", "nibabel", "matplotlib", "ray"}
    integrated = {"monai", "napari", "onnx", "onnxruntime", "qtpy", "rasterio", "sklearn", "transformers"}
    assert "fwcrf.hf" in modules and "fwcrf.activation" in modules
    assert not (extras | integrated) & {*modules}


def test_torch_comes_before_the_native_module(modules):
    assert modules.index("torch") < modules.index("fwcrf._core")
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"^\s*(import fwcrf\._core|from fwcrf\._core)", text, re.MULTILINE), path


def test_modules_need_no_import_of_their_own_and_bring_torch():
    code = "import sys, fwcrf; print(fwcrf.energy.unary_from_logits.__name__, 'torch' in sys.modules)"
    assert answer(code) == "unary_from_logits True"


def test_refining_loads_neither_the_compiler_nor_computer_algebra():
    code = (
        "import sys, numpy as np, fwcrf;"
        "image = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8);"
        "fwcrf.refine(image, np.full((20, 30, 4), 0.25, np.float32));"
        "print({'torch._dynamo', 'sympy'} & {*sys.modules})"
    )
    assert answer(code) == "set()"


def test_import_is_quick():
    """In processor time, the least of several. The package alone costs nothing beside Python's own start."""
    alone = "import time; a = time.process_time(); import fwcrf; print((time.process_time() - a) / a)"
    assert min(float(answer(alone)) for _ in range(3)) < 1.0
    # Whether Python's collector visits all objects of torch meanwhile is chance, and takes as long.
    after_torch = (
        "import gc, torch, time; gc.disable(); a = time.process_time(); from fwcrf import refine, DenseCRF;"
        "print((time.process_time() - a) / a)"
    )
    assert min(float(answer(after_torch)) for _ in range(2)) < 0.1


def test_a_typing_mistake_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'DensCRF'"):
        fwcrf.DensCRF  # noqa: B018
    with pytest.raises(ImportError, match="DensCRF"):
        from fwcrf import DensCRF  # noqa: F401


def test_every_name_is_there_and_shown():
    assert {*fwcrf.__all__} <= {*dir(fwcrf)}
    for name in fwcrf.__all__:
        assert getattr(fwcrf, name) is getattr(fwcrf, name)


def test_type_checkers_are_told_what_is_imported_on_use():
    """The imports under ``TYPE_CHECKING``, once carried out, give the same objects."""
    block = next(s for s in ast.parse((SOURCE / "__init__.py").read_text()).body if isinstance(s, ast.If))
    names = {}
    exec(ast.unparse(ast.Module(block.body, [])), names)
    del names["__builtins__"]
    assert names == {name: getattr(fwcrf, name) for name in fwcrf.__all__}
