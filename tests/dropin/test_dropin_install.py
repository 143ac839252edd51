"""``install`` answers imports of pydensecrf."""

import importlib
import sys

import pytest

import fwcrf.pydensecrf as ours


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
