"""Exported layers without operators of fwcrf, for ONNX and for programs without Python."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fwcrf.torch_ops import simplex
from fwcrf.torch_ops.separable_torch import filter as filter_axis

__all__ = ["plain"]


def plain(program: Any) -> Any:
    """An exported program of a ``DenseCRF`` in which torch's own operators have replaced those of fwcrf.

    ``torch.onnx.export`` translates it, and AOTInductor's package of it runs where fwcrf is not installed. It
    takes no lattice: ``Bilateral(..., method="exact")`` has the square of the number of pixels in memory, and
    is for the grid of a network's scores.
    """
    left = sorted({name for name in _operators(program) if name.split(".")[1] not in _PLAIN})
    if left:
        raise ValueError(
            f"the program has {', '.join(left)}, for which torch has no operators: a lattice. Expected "
            'kernels with method="exact" or "separable".'
        )
    table = torch.export.default_decompositions()
    for name in _operators(program):
        short = name.split(".")[1]
        table[getattr(torch.ops.fwcrf, short).default] = _PLAIN[short]
    return program.run_decompositions(table)


def _operators(program: Any) -> set[str]:
    """The names of fwcrf's operators in a program, such as "fwcrf.softmax.default"."""
    graphs = [module.graph for module in program.graph_module.modules() if hasattr(module, "graph")]
    names = {str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"}
    return {name for name in names if name.startswith("fwcrf.")}


def _exact(x: Tensor, rows: Tensor, columns: Tensor, checked: bool) -> Tensor:
    squared = (rows.unsqueeze(-2) - columns.unsqueeze(-3)).square().sum(-1)
    return torch.exp(-0.5 * squared) @ x


def _axis(x: Tensor, taps: Tensor, checked: bool) -> Tensor:
    return filter_axis(x, taps)


_PLAIN = {
    "softmax": simplex.softmax_portable,
    "project": simplex.project_portable,
    "axis_filter": _axis,
    "exact_filter": _exact,
}
