"""Models in the form of the native MAP algorithms: float64, one image each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.graphs.operator import Sparse
from fwcrf.graphs.potentials import TruncatedLinear, TruncatedQuadratic
from fwcrf.torch_ops.printed import in_one_line

if TYPE_CHECKING:
    from fwcrf.graphs.mrf import SparseMRF

# The names of EdgeShape in csrc/graph/model.hpp, in its order.
SHAPES = ("potts", "matrix", "tables", "linear", "quadratic")


@torch.no_grad()
def native_models(mrf: SparseMRF, unary: Tensor | None = None) -> list[_core.GraphModel]:
    """One native model per image, with finite costs as ``mrf.energy``; ``unary`` replaces the model's."""
    E = mrf.energy()
    shape, truncation = _shape(mrf)
    return native_energy(E.unary if unary is None else unary, E.pairwise, shape, truncation)  # type: ignore[arg-type]


def _shape(mrf: SparseMRF) -> tuple[str | None, float]:
    """The name of the costs' shape and the truncation; None for a shape that the operator shows."""
    costs, E = mrf.pairwise, mrf.energy()
    weights = E.pairwise._potentials(E.unary.shape[:-2])[0]  # type: ignore[attr-defined]
    if isinstance(costs, TruncatedLinear | TruncatedQuadratic) and bool((weights >= 0).all()):
        name = "linear" if isinstance(costs, TruncatedLinear) else "quadratic"
        return name, float(costs.truncation)
    return None, 0.0


class Costs(NamedTuple):
    """The costs of an image's edges: the arguments of a native model after its unary."""

    shape: int  # of SHAPES
    weight: Tensor | None
    matrix: Tensor | None
    tables: Tensor | None
    truncation: float

    __repr__ = in_one_line


@torch.no_grad()
def native_costs(mrf: SparseMRF) -> list[Costs]:
    """The costs of each image, in float64 and finite."""
    E = mrf.energy()
    return _costs(E.unary.shape[:-2], E.pairwise, *_shape(mrf))  # type: ignore[arg-type]


def _costs(batch: torch.Size, operator: Sparse, shape: str | None, truncation: float) -> list[Costs]:
    weight, matrix, tables = operator._potentials(batch)
    shape = shape or ("tables" if tables is not None else "potts" if matrix is None else "matrix")

    def of(t: Tensor | None, image: int) -> Tensor | None:
        return None if t is None else _plain(t[image if len(t) > 1 else 0])

    return [
        Costs(SHAPES.index(shape), of(weight, g), of(matrix, g), of(tables, g), truncation)
        for g in range(batch.numel())
    ]


@torch.no_grad()
def native_energy(
    unary: Tensor, operator: Sparse, shape: str | None = None, truncation: float = 0.0
) -> list[_core.GraphModel]:
    """One native model per image of ``unary`` and a graph's operator, finite costs as its own."""
    batch = unary.shape[:-2]
    graph = operator.graph.to(torch.device("cpu"))
    unary = _plain(unary).flatten(0, -3) if batch else _plain(unary).unsqueeze(0)
    return [
        _core.GraphModel(rows, *costs, graph.first, graph.neighbor, graph.slot)
        for rows, costs in zip(unary, _costs(batch, operator, shape, truncation), strict=True)
    ]


@torch.no_grad()
def forbidden_pairs(mrf: SparseMRF) -> list[Tensor] | None:
    """Per image, 1 for forbidden pairs of labels, ``(m or 1, L, L)`` in uint8. None if there are none."""
    given = mrf._given  # type: ignore[attr-defined]
    batch = mrf.unary.shape[:-2]
    _, matrix, tables = given._potentials(batch)
    costs = tables if tables is not None else None if matrix is None else matrix.unsqueeze(1)
    if costs is None or bool(torch.isfinite(costs.sum())):
        return None
    masks = (costs == torch.inf).to(device="cpu", dtype=torch.uint8).contiguous()
    if not bool(masks.any()):
        return None
    return [masks[g if len(masks) > 1 else 0] for g in range(mrf.unary.shape[:-2].numel())]


def _plain(t: Tensor) -> Tensor:
    return t.detach().to(device="cpu", dtype=torch.float64).contiguous()
