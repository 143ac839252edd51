"""``install`` answers imports of pydensecrf."""

import importlib
import os
import sys

import pytest

import fwcrf.pydensecrf as ours
from fwcrf.pydensecrf.replacement import ALIAS


def imported():
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "pydensecrf"}


def forget():
    for name in imported():
        del sys.modules[name]


@pytest.fixture(autouse=True)
def own_imports():
    """Each test begins as if nothing had imported pydensecrf, and leaves no trace."""
    before = imported()
    forget()
    yield
    ours.uninstall()
    forget()
    sys.modules.update(before)


@pytest.fixture
def original():
    return pytest.importorskip("pydensecrf.densecrf", reason="make .venv/.peers installs it")


def test_imports_resolve_here():
    ours.install()
    ours.install()  # as often as one likes
    import pydensecrf
    import pydensecrf.densecrf as dcrf
    import pydensecrf.utils as utils
    from pydensecrf import densecrf
    from pydensecrf.densecrf import DenseCRF2D
    from pydensecrf.eigen import MatrixXf

    assert pydensecrf is ours and dcrf is densecrf is ours.densecrf and utils is ours.utils
    assert DenseCRF2D is ours.densecrf.DenseCRF2D
    assert isinstance(dcrf.DenseCRF(2, 2).inference(0), MatrixXf)
    ours.uninstall()
    assert not imported()


def test_the_original_is_not_mixed_with_ours(original):
    with pytest.raises(RuntimeError, match=r"already imported, from .*pydensecrf.*install\(replace=True\)"):
        ours.install()
    assert importlib.import_module("pydensecrf.densecrf") is original


def test_the_original_is_replaced_on_demand_and_put_back(original):
    ours.install(replace=True)
    assert importlib.import_module("pydensecrf.densecrf") is ours.densecrf
    ours.uninstall()
    assert importlib.import_module("pydensecrf.densecrf") is original


@pytest.mark.parametrize("before", [None, "one", f"one{os.pathsep}two"])
def test_the_path_of_children_is_put_back(before, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before is not None:
        monkeypatch.setenv("PYTHONPATH", before)
    path = [*sys.path]
    for _ in range(2):
        ours.install()
    assert os.environ["PYTHONPATH"] == (ALIAS if before is None else f"{ALIAS}{os.pathsep}{before}")
    assert sys.path == [ALIAS, *path]
    for _ in range(2):
        ours.uninstall()
    assert os.environ.get("PYTHONPATH") == before and sys.path == path


def test_the_alias_is_this_package_also_as_a_clone_is_spelled(monkeypatch):
    monkeypatch.syspath_prepend(ALIAS)
    import pydensecrf
    import pydensecrf.eigen
    import pydensecrf.pydensecrf.densecrf as dcrf
    from pydensecrf.pydensecrf import utils
    from pydensecrf.pydensecrf.utils import unary_from_labels

    assert pydensecrf is ours and dcrf is ours.densecrf and utils is ours.utils
    assert pydensecrf.eigen is ours.eigen and unary_from_labels is ours.utils.unary_from_labels
