"""Small models on graphs, one for each kind of potential, and the best labelling by enumeration."""

from __future__ import annotations

import itertools

import torch
from helpers import normal, uniform

from fwcrf.graphs import Full, Potts, SparseMRF, Tables, TruncatedLinear, TruncatedQuadratic

N, L, M = 6, 3, 8
# A cycle with chords, an edge twice in each direction, and a node of its own.
EDGES = torch.tensor([[0, 1], [1, 2], [3, 2], [0, 3], [3, 1], [1, 3], [1, 2], [4, 0]])

POTENTIALS = {
    "one weight": lambda m, L, dtype: 0.7,
    "weights": lambda m, L, dtype: normal(m, dtype=dtype, seed=1),
    "linear": lambda m, L, dtype: TruncatedLinear(uniform(m, dtype=dtype, seed=2), 1.5),
    "quadratic": lambda m, L, dtype: TruncatedQuadratic(0.4, truncation=3.0),
    "matrix": lambda m, L, dtype: (lambda a: a + a.mT)(normal(L, L, dtype=dtype, seed=3)),
    "asymmetric matrix": lambda m, L, dtype: Full(
        normal(L, L, dtype=dtype, seed=4), normal(m, dtype=dtype, seed=5)
    ),
    "tables": lambda m, L, dtype: normal(m, L, L, dtype=dtype, seed=6),
}

# The same with a batch of two.
BATCHED = {
    "weights": lambda: Potts(normal(2, M, seed=1)),
    "matrix": lambda: Full(normal(2, L, L, seed=2), normal(M, seed=3)),
    "weights and matrix": lambda: Full(normal(2, L, L, seed=2), normal(2, M, seed=3)),
    "tables": lambda: Tables(normal(2, M, L, L, seed=4)),
}


def model(kind: str, dtype=torch.float64, *, labels: int = L, seed: int = 0) -> SparseMRF:
    return SparseMRF(normal(N, labels, dtype=dtype, seed=seed), EDGES, POTENTIALS[kind](M, labels, dtype))


def random_model(seed: int, n: int = 6, labels: int = 3) -> SparseMRF:
    """A random graph with a table per edge; some labels are missing."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(n))
    edges = pairs[torch.rand(len(pairs), generator=generator) < 0.5]
    unary = torch.randn(n, labels, generator=generator).double()
    unary[torch.rand(n, labels, generator=generator) < 0.15] = torch.inf
    unary[:, 0].clamp_(max=5.0)
    return SparseMRF(unary, edges, torch.randn(len(edges), labels, labels, generator=generator).double())


def labellings(mrf: SparseMRF) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(mrf.num_labels), repeat=mrf.num_nodes)))


def by_hand(mrf: SparseMRF, labels) -> float:
    """E of a labelling, written out."""
    tables = mrf.given_tables()
    unary = sum(float(mrf.unary[i, s]) for i, s in enumerate(labels))
    pairs = enumerate(mrf.edges.tolist())
    return mrf.constant + unary + sum(float(tables[e, labels[i], labels[j]]) for e, (i, j) in pairs)


def best(mrf: SparseMRF) -> float:
    return float(mrf.value(labellings(mrf)).min())
