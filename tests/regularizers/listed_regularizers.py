"""Regularizers to test. Being listed is being tested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from helpers import covering, normal
from torch import Tensor

from fwcrf.regularizers import (
    BinaryEntropy,
    BlockQuadratic,
    Entropy,
    Linear,
    Mixed,
    Simplex,
    SquaredL2,
    SquaredLp,
    Tsallis,
    block_quadratic,
)

L = 4


def _form(num_labels: int) -> Tensor:
    root = normal(num_labels, num_labels, seed=7)
    return root @ root.mT / num_labels + 0.1 * torch.eye(num_labels, dtype=torch.float64)


# By number of labels: positive definite matrices that are no multiples of the identity between points of
# the simplex, and linear costs. Made here, because random numbers are refused inside vmap.
FORMS = {n: _form(n) for n in (1, 2, 3, 4, 9, 21, 40)}
COSTS = {n: normal(1, n, seed=8) for n in FORMS}


@dataclass(frozen=True)
class Case:
    make: Callable[..., Any]  # (num_labels, *weights)
    weights: tuple[float, ...] = ()
    symmetric: bool = True  # all labels are alike, so that a label may be left out
    differentiable: bool = True
    traceable: bool = True  # can be made inside torch.compile

    def g(self, num_labels: int = L, *weights: float | Tensor) -> Any:
        return self.make(num_labels, *(weights or self.weights))

    def per_node(self, n: int, seed: int = 0) -> tuple[Tensor, ...]:
        """Weights that differ between nodes, (n, 1)."""
        return tuple(w * normal(n, 1, seed=seed + i).mul(0.3).exp() for i, w in enumerate(self.weights))


CASES: dict[str, Case] = {
    "simplex": Case(lambda n: Simplex(), differentiable=False),
    "entropy": Case(lambda n, w: Entropy(w), (0.4,)),
    "squared-l2": Case(lambda n, w: SquaredL2(w), (1.3,)),
    **{
        f"tsallis-{a}": Case(lambda n, w, a=a: Tsallis(a, w), (0.7,))
        for a in (1.0, 1.001, 1.2, 1.5, 1.8, 2.0, 2.5)
    },
    "mixed": Case(lambda n, w, v: Mixed(w, v), (1.2, 0.3)),
    "mixed-mostly-l2": Case(lambda n, w, v: Mixed(w, v), (1.0, 1e-3)),
    "mixed-mostly-entropy": Case(lambda n, w, v: Mixed(w, v), (1e-3, 0.6)),
    "binary-entropy": Case(lambda n, w: BinaryEntropy(w), (0.4,)),
    **{f"squared-lp-{p}": Case(lambda n, w, p=p: SquaredLp(p, w), (1.1,)) for p in (1.2, 1.5, 2.0, 3.0)},
    "linear": Case(lambda n, w: Linear(SquaredL2(w), COSTS[n]), (0.8,), symmetric=False),
    "block-quadratic": Case(lambda n, w: BlockQuadratic(FORMS[n], w, COSTS[n]), (1.4,), symmetric=False),
    "block-quadratic-entropy": Case(
        lambda n, w, v: BlockQuadratic(FORMS[n], w, COSTS[n], v), (1.4, 0.2), symmetric=False
    ),
    "block-potts": Case(
        lambda n, w: block_quadratic(torch.eye(n, dtype=torch.float64) - 1, w), (0.9,), traceable=False
    ),
    "block-potts-entropy": Case(
        lambda n, w, v: block_quadratic(torch.eye(n, dtype=torch.float64) - 1, w, COSTS[n], v),
        (0.9, 0.2),
        symmetric=False,
        traceable=False,
    ),
}


# One of every kind of oracle, for what does not depend on numbers.
KINDS = (
    "entropy",
    "squared-l2",
    "tsallis-1.5",
    "mixed",
    "binary-entropy",
    "squared-lp-1.5",
    "linear",
    "block-quadratic-entropy",
    "block-potts-entropy",
)


def listed(
    among: Iterable[str] = CASES, values: Mapping[str, Sequence[Any]] | None = None, **wanted: bool
) -> Any:
    """``@listed(differentiable=True)``: the test runs with each such case as ``case``.

    With ``values`` of other parameters, every pair of values comes up, and not their whole product.
    """
    chosen = {
        name: CASES[name]
        for name in among
        if all(getattr(CASES[name], attribute) == value for attribute, value in wanted.items())
    }
    return (
        covering(case=chosen, **values)
        if values
        else pytest.mark.parametrize("case", chosen.values(), ids=chosen)
    )


def simplex_points(*shape: int, seed: int = 0, spread: float = 3.0) -> Tensor:
    """Rows on the simplex, many near its boundary."""
    return torch.softmax(spread * normal(*shape, seed=seed), -1)


def objective(g: Any, c: Tensor, x: Tensor) -> Tensor:
    """<c, x> + r(x) of each node."""
    return torch.where(x == 0, 0.0, c * x).sum(-1) + g.per_node(x)
