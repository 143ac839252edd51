"""Tables of a kernel, its weights and diagonals, through which bandwidths and features are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fwcrf.kernels.lattice import Lattice
from fwcrf.kernels.operator import Operator, Shifted
from fwcrf.kernels.separable import Separable


def tables(operator: Operator) -> list[Tensor]:
    """The tables of a symmetric kernel of the engine, in a fixed order."""
    if isinstance(operator, Lattice):
        return [operator.splat] if operator.shift is None else [operator.splat, operator.shift]
    if isinstance(operator, Shifted):
        return [*tables(operator.inner), operator.shift]
    if isinstance(operator, Separable):
        return [*operator.taps, *(operator.left or ())]
    return []


def slopes(operator: Operator, given: Sequence[Tensor], x: Tensor, g: Tensor) -> list[Tensor]:
    """The derivative of <g, K x> in each of the tables ``given``, which replace the operator's own."""
    if isinstance(operator, Lattice):
        return _with_tables(operator, given).slopes(x, g)  # type: ignore[attr-defined]
    if isinstance(operator, Shifted):
        of_shift = (g * x).sum(-1).view(-1, *given[-1].shape).sum(0)
        return [*slopes(operator.inner, given[:-1], x, g), of_shift]
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in given]
        return list(torch.autograd.grad(_with_tables(operator, leaves).apply(x), leaves, g))


def _with_tables(operator: Operator, given: Sequence[Tensor]) -> Operator:
    if isinstance(operator, Lattice):
        shift = given[1] if operator.shift is not None else None
        return replace(operator, splat=given[0], slice=given[0], shift=shift, _minus=[])
    if not isinstance(operator, Separable):
        raise TypeError(f"{type(operator).__name__} has no tables; expected Lattice or Separable.")
    axes = len(operator.taps)
    factors = tuple(given[axes:]) or None
    return replace(operator, taps=tuple(given[:axes]), left=factors, right=factors)
