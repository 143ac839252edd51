"""Former module names, understood for one more release: ``import fwcrf.data`` gives ``fwcrf.apps.data``."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_APPS = "batch bench cli data demo evaluation experiments files models training tuning"
RENAMED = {
    "fwcrf.lp.solution": "fwcrf.graphs.linear",
    "fwcrf.resample": "fwcrf.inputs.resample",
    "fwcrf.schedules": "fwcrf.stepsizes",
    "fwcrf.scores": "fwcrf.inputs.scores",
    "fwcrf.simplex": "fwcrf.torch_ops.simplex",
    "fwcrf.tiles": "fwcrf.inputs.tiles",
    "fwcrf.kernels.gaussians": "fwcrf.kernels.kernel",
    "fwcrf.graphs.uai": "fwcrf.apps.files.uai",
    "fwcrf.graphs.uai_text": "fwcrf.apps.files.uai_text",
    "fwcrf.files.needs": "fwcrf.optional",
    **{f"fwcrf.{app}": f"fwcrf.apps.{app}" for app in _APPS.split()},
}
# Names that a module no longer defines, and the module that does.
ATTRIBUTES = {
    ("fwcrf.graphs", "read_uai"): "fwcrf.apps.files.uai",
    ("fwcrf.graphs", "write_uai"): "fwcrf.apps.files.uai",
}


def former_attribute(module: str, name: str) -> object:
    """A name that ``module`` defined formerly."""
    if (module, name) not in ATTRIBUTES:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return getattr(import_module(ATTRIBUTES[module, name]), name)


def present_name(name: str) -> str | None:
    """The present name of a module; None if the module has not been renamed.

    >>> present_name("fwcrf.data.voc"), present_name("fwcrf.energy")
    ('fwcrf.apps.data.voc', None)
    """
    parts = name.split(".")
    for count in (3, 2):
        if found := RENAMED.get(".".join(parts[:count])):
            return ".".join([found, *parts[count:]])
    return None


class Finder:
    """An import hook that loads a renamed module once, under both names."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith("fwcrf.") or present_name(name) is None:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        name = present_name(spec.name)
        assert name is not None
        module = import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just given the module the spec of its former name.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def understand_former_names() -> None:
    """Install the import hook, before the finders that would load a module a second time."""
    sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]
