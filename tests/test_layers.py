"""The import graph as a contract: a unit of the package imports only from units before it in one order.

All imports count: late ones inside functions, ones for type checkers, and modules that are named by a string.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "fwcrf"

# Every unit of the package, lowest first: a module, a folder, or a part of a folder (as "folder.part").
# A file belongs to the longest entry that its name begins with.
UNITS = """
    openmp
    _core
    renamed optional runtime lattice_geometry magnitudes
    torch_ops
    inputs
    features
    kernels
    compatibility
    engine
    pairwise
    spectrum energy certificates
    regularizers stepsizes rounding
    solvers start
    lp graphs
    presets
    theory segments gradients losses layer
    changed frames arguments refinement points stream activation
    pydensecrf official
    __init__
    apps apps.files integrations.geotiff apps.models apps.data examples apps.batch apps.evaluation
    apps.tuning apps.fitting apps.training apps.experiments apps.bench apps.demo apps.cli
    integrations
    hf
    plot
    __main__
"""
ORDER = UNITS.split()

# Imports against the order: the file, the unit that it imports, and the reason.
EXCEPTIONS = {
    ("solvers/named.py", "graphs"): "the same for solvers of graphs",
    ("solvers/named.py", "lp"): "one table of names for all solvers; the import waits for a name of lp",
    ("__init__.py", "apps.files"): "fwcrf.read_uai and fwcrf.write_uai, imported on first use",
    ("__init__.py", "examples"): "fwcrf.examples, for type checkers",
    ("__init__.py", "hf"): "fwcrf.hf, for type checkers",
    ("__init__.py", "plot"): "fwcrf.plot, for type checkers",
}


class Import(NamedTuple):
    """One place where a file of the package imports a module of the package."""

    file: str
    line: int
    module: str  # dotted, without the package: "kernels.lattice"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} (imports {self.module})"


def unit_of(module: str, order: Iterable[str]) -> str | None:
    """The longest entry that a dotted name begins with; None if no entry does."""
    parts = module.split(".")
    names = {".".join(parts[:k]) for k in range(1, len(parts) + 1)}
    return max(names & set(order), key=len, default=None)


def imports(package: Path) -> list[Import]:
    """All imports of the package's own modules, in all of its files."""
    defined = _defined_in(package / "__init__.py")
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package)
        tree = ast.parse(path.read_text(), str(path))
        found += [
            Import(str(file), line, module) for line, module in _named(tree, file, package.name, defined)
        ]
    return found


def _named(tree: ast.AST, file: Path, package: str, defined: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Lines and modules, without the package's own name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith(f"{package}.")]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                folders = (package, *file.parts[:-1])
                base = ".".join([*folders[: len(folders) - node.level + 1], *base.split(".")]).rstrip(".")
            names = [f"{base}.{alias.name}" for alias in node.names]
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == package
        ):
            names = [f"{package}.{node.attr}"]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and file.name != "renamed.py":
            # (renamed.py holds former names, which it imports only when a user does.)
            names = [node.value] if re.fullmatch(rf"{package}(\.\w+)+\.?", node.value) else []
        else:
            names = []
        for name in names:
            first, _, module = name.rstrip(".").partition(".")
            if first == package and module:
                yield node.lineno, defined.get(module, module)
    if str(file) == "__init__.py":
        yield from ((1, module) for module in defined.values())


def _defined_in(init: Path) -> dict[str, str]:
    """Modules of the names that the package imports on first use; its own names belong to "__init__"."""
    table = {}
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.Assign):
            target = ast.unparse(node.targets[0])
            table[target] = "__init__"
            if target == "_DEFINED_IN":
                table |= ast.literal_eval(node.value)
    return table


def complaints(
    found: Iterable[Import], order: list[str], exceptions: Iterable[tuple[str, str]] = ()
) -> list[str]:
    """A sentence for every import against the order, and for every exception that is none."""
    unused = set(exceptions)
    sentences = []
    for each in found:
        importer = unit_of(".".join(Path(each.file).with_suffix("").parts), order)
        imported = unit_of(each.module, order)
        if importer is None or imported is None:
            missing = each.file if importer is None else each.module
            sentences.append(f"{each}: UNITS has no unit for {missing}")
        elif order.index(imported) > order.index(importer):
            if (each.file, imported) in exceptions:
                unused.discard((each.file, imported))
            else:
                sentences.append(f"{each}: {importer} comes before {imported} in UNITS")
    return sentences + [f"{file} does not import {unit}: drop the exception" for file, unit in sorted(unused)]


def test_units_import_only_from_units_before_them():
    found = imports(PACKAGE)
    assert len(found) > 500  # the search finds imports at all
    wrong = complaints(found, ORDER, EXCEPTIONS)
    assert not wrong, "\n".join(wrong)


def test_every_unit_of_the_order_exists_once():
    assert len(set(ORDER)) == len(ORDER)
    paths = {unit: PACKAGE.joinpath(*unit.split(".")) for unit in ORDER}
    missing = [
        unit for unit, p in paths.items() if not p.is_dir() and not list(p.parent.glob(f"{p.name}.py*"))
    ]
    assert not missing, f"UNITS has units that are gone: {missing}"


def test_every_file_has_a_place():
    modules = [".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in PACKAGE.rglob("*.py")]
    assert not [module for module in modules if unit_of(module, ORDER) is None]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import pkg.high", 1),
        ("from pkg import high", 1),
        ("from pkg.high import name", 1),
        ("from . import high", 1),
        ("from .high.part import name", 1),
        ("from pkg import Thing", 1),
        ("def f():\n    from pkg.high import name", 2),
        ("if TYPE_CHECKING:\n    from pkg import high", 2),
        ("def f():\n    return import_module('pkg.high')", 2),
        ("TABLE = {\n    'name': 'pkg.high.part',\n}", 2),
        ("module = f'pkg.high.{name}'", 1),
        ("import pkg\nx = pkg.Thing()", 2),
    ],
)
def test_an_import_of_a_later_unit_is_named(tmp_path, source, line):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '1'\n_DEFINED_IN = {'Thing': 'high'}\n")
    (package / "low.py").write_text(source)
    (wrong,) = complaints(imports(package), ["low", "high", "__init__"])
    assert wrong.startswith(f"low.py:{line} ") and wrong.endswith("low comes before high in UNITS")


def test_imports_of_earlier_units_and_of_other_packages_are_right(tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "low.py").write_text("'''See pkg.high.'''\nimport numpy\nfrom pkgs.high import x")
    (package / "high.py").write_text("from pkg.low import x\nfrom pkg import low\nfrom pkg.high import y")
    assert not complaints(imports(package), ["low", "high", "__init__"])


def test_unknown_units_cycles_and_old_exceptions_are_named():
    found = [Import("a.py", 1, "b"), Import("b.py", 2, "a"), Import("b.py", 3, "c.d"), Import("e.py", 4, "a")]
    text = "\n".join(complaints(found, ["a", "b"], {("b.py", "x")}))
    assert text == dedent("""\
        a.py:1 (imports b): a comes before b in UNITS
        b.py:3 (imports c.d): UNITS has no unit for c.d
        e.py:4 (imports a): UNITS has no unit for e.py
        b.py does not import x: drop the exception""")
    assert not complaints(found[:2], ["a", "b"], {("a.py", "b")})


def test_the_longest_entry_is_the_unit():
    assert unit_of("apps.files.images", ["apps", "apps.files"]) == "apps.files"
    assert unit_of("apps.cli", ["apps", "apps.files"]) == "apps"
    assert unit_of("application", ["apps", "app"]) is None
