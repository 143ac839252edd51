"""Objects that hold arrays print in a line or three, however large the arrays are."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
import sys
import warnings
from functools import partial

import numpy as np
import pytest
import torch

import fwcrf
from fwcrf.torch_ops.printed import in_one_line, shortly

# They print sentences of their own, tested below.
OWN = {fwcrf.Solution.__repr__, fwcrf.SparseMRF.__repr__}
# Modules of another system, and of extras that may be missing, import these.
ELSEWHERE = {"fcntl", "msvcrt", "napari", "triton"}


def records():
    """Every dataclass and named tuple of the package."""
    for module in pkgutil.walk_packages(fwcrf.__path__, "fwcrf."):
        if module.name.endswith(("__main__", "_core")):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of napari, which make integrations installs, about pydantic
                imported = importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in ELSEWHERE:
                raise
            continue
        for _, found in inspect.getmembers(imported, inspect.isclass):
            named_tuple = issubclass(found, tuple) and hasattr(found, "_fields")
            if found.__module__ == module.name and (dataclasses.is_dataclass(found) or named_tuple):
                yield found


def annotations(record):
    """The values of all names in the annotations of the fields, inherited ones too."""
    for owner in record.__mro__:
        names = re.findall(r"\w+", " ".join(map(str, vars(owner).get("__annotations__", {}).values())))
        space = vars(sys.modules[owner.__module__])
        yield from (space[name] for name in names if name in space)


def holders():
    """Records with a field for arrays, or for other such records."""
    uses = {record: list(annotations(record)) for record in records()}
    found = {torch.Tensor, np.ndarray}
    for _ in range(len(uses)):
        more = {record for record, used in uses.items() if any(map(partial(_mentions, found), used))} - found
        if not more:
            return found & {*uses}
        found |= more
    raise AssertionError("the search goes on and on")


def _mentions(found, used):
    """True for a class of ``found``, for its subclasses and base classes, and for a union with an array."""
    if inspect.isclass(used):
        ours = used.__module__.startswith("fwcrf")
        return used in found or (ours and any(used in one.__mro__ for one in found))
    return bool(re.search(r"\b(Tensor|ndarray)\b", str(used)))


def test_every_class_that_holds_arrays_prints_them_by_their_shape():
    found = holders()
    assert len(found) > 60  # the search finds classes at all
    wrong = [f"{one.__module__}.{one.__name__}" for one in found if one.__repr__ not in {in_one_line, *OWN}]
    assert not wrong, f"{sorted(wrong)}: add `__repr__ = in_one_line` to the class"


@pytest.fixture(scope="module")
def crf():
    return fwcrf.DenseCRF(5, num_steps=2)


@pytest.fixture(scope="module")
def given():
    g = torch.Generator().manual_seed(0)
    return 255 * torch.rand(2, 3, 20, 30, generator=g), torch.randn(2, 5, 20, 30, generator=g)


def test_a_solution_prints_shape_energy_and_engine(crf, given):
    solution = crf.solve(*given, trace=True)
    text = repr(solution)
    assert len(text.splitlines()) == 2
    assert text.startswith("GridSolution(probabilities=float32 (2, 5, 20, 30), energy=[")
    assert f"{solution.energy[0].item():.6g}" in text
    assert "converged=False, trace=3 of Record)" in text and text.endswith(f"engine: {solution.engine}")
    assert len(repr(solution.trace[0]).splitlines()) == 1


def test_a_solution_of_a_graph_prints_its_bound():
    edges, weight = fwcrf.graphs.grid((20, 30))
    mrf = fwcrf.SparseMRF(torch.rand(600, 2), edges, fwcrf.graphs.Potts(weight))
    assert repr(mrf) == "SparseMRF(600 nodes, 1150 edges, 2 labels, Potts)"
    text = repr(mrf.solve("lp-meshi", num_steps=2))
    assert len(text.splitlines()) <= 3
    assert re.match(
        r"LinearSolution\(probabilities=float32 \(600, 2\), energy=[-\d.]+, .*bound=[-\d.]+\)", text
    )


def test_an_energy_prints_its_shape(crf, given):
    text = repr(crf.energy(*given))
    assert text.startswith("Energy(pairwise=") and text.endswith("unary=float32 (2, 600, 5))")
    assert len(text) < 300 and "\n" not in text


def test_few_numbers_are_printed_and_many_are_not():
    assert shortly(torch.tensor([0.25, 1e-9])) == "[0.25, 1e-09]"
    assert shortly(np.array([[1, 2], [3, 4]])) == "[[1, 2], [3, 4]]"
    assert shortly(np.zeros((3, 4), np.float16)) == "float16 (3, 4)"
    assert shortly(torch.zeros(2, device="meta")) == "float32 (2,) on meta"
    assert shortly("x" * 1000) == f"'{'x' * 76}..."
    assert shortly(fwcrf.rounding.nearest) == "nearest"


def test_a_solution_prints_while_torch_traces(crf, given):
    """The energy cannot be read then, and is left out."""
    printed = []

    def solve(logits):
        solution = crf.solve(given[0][0], logits)
        printed.append(repr(solution))
        return solution.probabilities.sum()

    torch.func.vmap(solve)(given[1])
    assert printed[0].startswith("GridSolution(probabilities=float32 (5, 20, 30), converged")
