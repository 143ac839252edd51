"""An unchanged program and its children: by the distribution, by the runner and by ``install``."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import fwcrf
from fwcrf.pydensecrf.replacement import ALIAS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PIPELINE = HERE / "workers" / "pipeline.py"
OURS = "fwcrf.pydensecrf.densecrf"

# Python runs it first in every process that reads PYTHONPATH: no pydensecrf is installed there.
HIDDEN = """
import sys
from importlib.machinery import PathFinder

class Hidden:
    def find_spec(name, path=None, target=None):
        if name == "pydensecrf":
            folders = [folder for folder in sys.path if not folder.endswith("site-packages")]
            found = PathFinder.find_spec(name, folders)
            if found is None:
                raise ModuleNotFoundError("No module named 'pydensecrf'", name=name)
            return found

sys.meta_path.insert(0, Hidden)
"""


@pytest.fixture(scope="module")
def distribution(tmp_path_factory):
    """A folder with the wheel fwcrf-pydensecrf installed, built without the network."""
    if not (ROOT / "packaging").exists():
        pytest.skip("needs the sources of the distribution, packaging/")
    built, target = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("target")
    source = ROOT / "packaging" / "pydensecrf-fwcrf"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--no-input"]
    for command in (
        [*pip, "wheel", "--no-index", "--no-deps", "--no-build-isolation", "-w", str(built), str(source)],
        [*pip, "install", "--no-index", "--no-deps", "--find-links", str(built), "--pre", "--target",
         str(target), "fwcrf-pydensecrf"],
    ):  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (wheel,) = built.iterdir()
    assert wheel.name == f"fwcrf_pydensecrf-{fwcrf.__version__}-py3-none-any.whl"
    return target


@pytest.fixture
def hidden(tmp_path):
    """A folder for PYTHONPATH with which the original is not installed."""
    (tmp_path / "sitecustomize.py").write_text(HIDDEN)
    return tmp_path


def run(*command, folders=()):
    """What each kind of worker found, by kind."""
    given = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(given), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def modules(found):
    return {kind: {module for module, _ in answers} for kind, answers in found.items()}


@pytest.mark.posix
def test_the_distribution_reaches_workers_of_all_kinds(distribution):
    kinds = ["here", "threads", "fork", "torch spawn", "DataLoader", "joblib"]
    found = run(str(PIPELINE), *kinds, folders=[distribution])
    assert modules(found) == {kind: {OURS} for kind in kinds}
    first, second = found["threads"]
    assert first == found["here"][0] == found["torch spawn"][0] and second != first
    assert found["fork"] == found["joblib"] == found["DataLoader"] == found["threads"]


def test_the_runner_reaches_children_without_the_original(hidden):
    kinds = ["here", "spawn", "program", "torch in spawned", "isolated program"]
    found = run("-m", "fwcrf.pydensecrf", str(PIPELINE), *kinds, folders=[hidden])
    # An isolated program reads no environment: it is out of reach.
    isolated = found.pop("isolated program")[0][0]
    assert isolated != OURS
    assert {loaded for loaded, _ in found.pop("torch in spawned")} == {False}
    assert modules(found) == {kind: {OURS} for kind in kinds[:3]}
    assert found["spawn"][0] == found["here"][0]


def test_the_original_is_hidden_where_it_is_said_to_be(hidden):
    done = subprocess.run([sys.executable, "-c", "import pydensecrf"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(hidden)})  # fmt: skip
    assert "ModuleNotFoundError: No module named 'pydensecrf'" in done.stderr


@pytest.mark.skipif(find_spec("pydensecrf") is None, reason="pydensecrf is not installed: make .venv/.peers")
def test_installing_reaches_children_before_the_original(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(f"""
import runpy, sys
import fwcrf.pydensecrf
fwcrf.pydensecrf.install()
sys.argv[0] = {str(PIPELINE)!r}
runpy.run_path({str(PIPELINE)!r}, run_name="__main__")
""")
    found = run(str(script), "spawn", "isolated program")
    assert found.pop("isolated program")[0][0] == "pydensecrf.densecrf"
    assert modules(found) == {"spawn": {OURS}}


def test_the_alias_without_fwcrf_names_the_remedy():
    code = f"import sys; sys.modules['fwcrf'] = None; sys.path.insert(0, {ALIAS!r}); import pydensecrf"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert "pip install fwcrf" in done.stderr and "PYTHONPATH" in done.stderr
