"""Former module names still work, and load no module twice."""

import sys
from importlib import import_module

import pytest

from fwcrf.renamed import RENAMED, present_name


@pytest.mark.parametrize("former", RENAMED)
def test_both_names_give_one_module(former):
    present = RENAMED[former]
    if present == "fwcrf.apps.cli":
        pytest.importorskip("typer")
    assert import_module(former) is import_module(present)
    assert import_module(former).__spec__.name == present


def test_submodules_are_not_loaded_twice():
    former, present = import_module("fwcrf.data.voc"), import_module("fwcrf.apps.data.voc")
    assert former is present
    assert former.__name__ == "fwcrf.apps.data.voc"
    assert sys.modules["fwcrf.data.voc"] is present


def test_names_that_never_existed_are_refused():
    assert present_name("fwcrf.energy") is None
    with pytest.raises(ModuleNotFoundError):
        import_module("fwcrf.data.nothing")
