"""Every native function is called by the driver under sanitizers, or by the fuzz target of the module."""

import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from api_targets import Refused
from choices import Bytes
from native_targets import FUNCTIONS, TARGETS, WITHOUT_ARGUMENTS, arguments

from fwcrf import _core

ROOT = Path(__file__).parents[2]
LISTED = re.findall(r"^    F\([\w:]+, (\w+), ", (ROOT / "csrc/bind/functions.hpp").read_text(), re.MULTILINE)
DRIVER = "\n".join(path.read_text() for path in (ROOT / "tests/reliability/native").glob("*pp"))


def test_the_driver_calls_every_function_of_the_list():
    assert len(LISTED) > 25 and {"filter", "run_steps", "embed"} < set(LISTED)
    called = set(re.findall(r"native<T>\(\)\s*\.(\w+)", DRIVER))
    # These two are called by functions that choose between them and another way.
    within = {"embed": r"= build\(points", "diagonal": r"\bdiagonal\(rows"}
    assert set(LISTED) - called == {name for name, call in within.items() if re.search(call, DRIVER)}
    assert called <= set(LISTED)


def test_the_fuzz_target_calls_every_function_of_the_module():
    names = {name for name in dir(_core) if not name.startswith("_") and callable(getattr(_core, name))}
    models = {name for name in names if isinstance(getattr(_core, name), type)}
    methods = {f"{m}.{name}" for m in models for name in dir(getattr(_core, m)) if not name.startswith("_")}
    every = (names - models) | methods
    assert {name for name in every if name.rpartition(".")[2] not in WITHOUT_ARGUMENTS} == set(FUNCTIONS)
    for name in WITHOUT_ARGUMENTS:
        assert any(
            hasattr(owner, name) for owner in (_core, _core.ModelF32, _core.SpreadsF32, _core.GraphModel)
        )


def test_bindings_and_stubs_have_the_same_names():
    bound = set(
        re.findall(
            r'\.def(?:_static)?\(\s*"(\w+)"',
            "".join(p.read_text() for p in (ROOT / "csrc/bind").glob("*.cpp")),
        )
    )
    assert bound == {name.rpartition(".")[2] for name in FUNCTIONS} | set(WITHOUT_ARGUMENTS)
    stubs = (ROOT / "src/fwcrf/_core.pyi").read_text()
    assert bound == set(re.findall(r"def (\w+)\(", stubs)) - {"__init__"}


# Functions whose arrays fit each other too rarely by chance: targets that make their tables call them, and
# the model in all of its forms.
BY_TARGETS = {
    "bilateral_features": "native_grid",
    "build_lattice": "native_lattice",
    "image_lattice": "native_grid",
    "best_labels": "native_pruning",
    "rarity": "native_pruning",
    "diagonal": "native_lattice",
    "embedding_adjoint": "native_lattice",
    "sampled_sums": "native_lattice",
    "normalize": "native_lattice",
    "merge_labels": "native_pruning",
    "unmerge_labels": "native_pruning",
    "shrink_lines": "native_grid",
    "transpose_and_sum": "native_grid",
    "shrink_axis": "native_grid",
    "edge_sum": "native_graph",
    "table_sum": "native_graph",
    "graph_descent": "native_graph",
    "selected_inverse": "native_graph",
}
BY_THE_MODEL = ("add_grid", "run", "array")


@pytest.mark.parametrize(
    "name", [n for n in FUNCTIONS if n not in BY_TARGETS and not n.endswith(BY_THE_MODEL)]
)
def test_some_arguments_fit_and_some_are_refused(name):
    """Otherwise nothing behind the first check of a function would ever be reached."""
    place = [*FUNCTIONS].index(name)
    outcomes = set()
    for number in range(4000):
        data = bytes([place]) + np.random.default_rng([3, number]).bytes(200)
        try:
            arguments(Bytes(data))
            outcomes.add("answered")
        except Refused:
            outcomes.add("refused")
        if len(outcomes) == 2:
            return
    raise AssertionError(f"{name} is always {outcomes}")


@pytest.mark.parametrize("target", sorted({*BY_TARGETS.values()}))
def test_targets_call_the_other_functions(target, monkeypatch, num_threads):
    wanted = {name for name, by in BY_TARGETS.items() if by == target}
    called = set()

    def counted(name, function):
        def call(*given, **named):
            called.add(name)
            return function(*given, **named)

        return call

    for name in wanted:
        monkeypatch.setattr(_core, name, counted(name, getattr(_core, name)))
    for number in range(300):
        with suppress(Refused):
            TARGETS[target](Bytes(np.random.default_rng([5, number]).bytes(100)))
        if called == wanted:
            return
    raise AssertionError(f"{wanted - called} are never called")
