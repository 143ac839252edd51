"""Small graphs with random energies, and what is true of them by enumeration."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

import fwcrf
from fwcrf.lp import Relaxation, relax


class Graph(NamedTuple):
    unary: Tensor  # (n, L)
    edges: Tensor  # (m, 2)
    tables: Tensor  # (m, L, L)

    @property
    def relaxation(self) -> Relaxation:
        return relax(*self)

    @property
    def mrf(self) -> fwcrf.SparseMRF:
        return fwcrf.SparseMRF(*self)


class Truth(NamedTuple):
    least: float  # energy
    log_partition: float
    nodes: Tensor  # marginals, (n, L)
    pairs: Tensor  # (m, L, L)


def random_edges(n: int, generator: np.random.Generator, *, forest: bool) -> list[list[int]]:
    """A forest of one or more trees, edges turned at random; or a graph with about two edges per node."""
    order = generator.permutation(n)
    edges = [
        [int(order[i]), int(order[generator.integers(i)])] for i in range(1, n) if generator.random() < 0.85
    ]
    if not forest:
        pairs = list(itertools.combinations(range(n), 2))
        chosen = generator.permutation(len(pairs))[: n + 1]
        known = {frozenset(edge) for edge in edges}
        edges += [list(pairs[k]) for k in chosen if frozenset(pairs[k]) not in known]
    return [edge[::-1] if generator.random() < 0.5 else edge for edge in edges]


def random_graph(
    seed: int, n: int, labels: int, *, forest: bool = False, forbidden: bool = False, scale: float = 1.0
) -> Graph:
    generator = np.random.default_rng(seed)
    edges = random_edges(n, generator, forest=forest)
    unary = scale * generator.normal(size=(n, labels))
    if forbidden:
        out = generator.random((n, labels)) < 0.25
        out[np.arange(n), generator.integers(labels, size=n)] = False
        unary[out] = np.inf
    tables = scale * generator.normal(size=(len(edges), labels, labels))
    return Graph(torch.from_numpy(unary), torch.tensor(edges).reshape(-1, 2).long(), torch.from_numpy(tables))


def truth(graph: Graph) -> Truth:
    """By going through all labellings."""
    unary, edges, tables = graph
    n, L = unary.shape
    labels = torch.cartesian_prod(*[torch.arange(L)] * n).reshape(-1, n)
    one = torch.nn.functional.one_hot(labels, L).double()
    energy = unary[torch.arange(n), labels].sum(-1)
    if len(edges):
        energy = energy + tables[
            torch.arange(len(edges)), labels[:, edges[:, 0]], labels[:, edges[:, 1]]
        ].sum(-1)
    p = torch.softmax(-energy, 0)
    pairs = torch.einsum("k,kms,kmt->mst", p, one[:, edges[:, 0]], one[:, edges[:, 1]])
    return Truth(
        float(energy.min()), float(torch.logsumexp(-energy, 0)), torch.einsum("k,kns->ns", p, one), pairs
    )


def linear_program(graph: Graph) -> float:
    """The least of the relaxation by HiGHS, written down equation by equation."""
    unary, edges, tables = (t.numpy() for t in graph)
    n, L = unary.shape
    m = len(edges)
    size = n * L + m * L * L
    rows, right = [], []
    for i in range(n):
        row = np.zeros(size)
        row[i * L : (i + 1) * L] = 1
        rows.append(row)
        right.append(1.0)
    for k in range(m):
        block = n * L + k * L * L + np.arange(L * L).reshape(L, L)
        for s in range(L):
            for node, columns in ((edges[k, 0], block[s]), (edges[k, 1], block[:, s])):
                row = np.zeros(size)
                row[columns] = 1
                row[node * L + s] = -1
                rows.append(row)
                right.append(0.0)
    cost = np.concatenate([unary.ravel(), tables.ravel()])
    upper = np.where(np.isinf(cost), 0.0, np.inf)
    found = linprog(
        np.where(np.isinf(cost), 0.0, cost),
        A_eq=np.array(rows),
        b_eq=right,
        bounds=np.stack([np.zeros(size), upper], -1),
        method="highs",
    )
    assert found.status == 0
    return found.fun
