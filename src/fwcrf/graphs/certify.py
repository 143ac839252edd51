"""Lower bounds for models with two labels by cycle cuts: a certificate where messages leave a gap.

Labels of two values are a cut of the graph with one more node, whose label is 0: y_ij = 1 if i and j differ,
and y_0i is the label of i. Along every closed walk the labels change an even number of times, so that

    sum over F of (1 - y) + sum over the remaining edges of the walk of y >= 1

for every set F of an odd number of its edges. The energy is linear in y. The linear program begins with
the triangles of each edge and the additional node: the local polytope. Walks whose inequality is violated are
shortest paths in a graph with two copies of each node (Barahona and Mahjoub 1986); they are added until none
is left, or the bound attains the energy of the labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fwcrf.graphs.search import Search
from fwcrf.optional import needed

_VIOLATED = 1e-6
_AT_ONCE = 256  # sources of shortest paths
_SLACK = 0.05  # a cut with more slack is dropped when the bound has risen


class Cut(NamedTuple):
    """The energy as constant + <cost, y>, over edges (k, 2) of nodes 0 (the additional one) to n."""

    ends: np.ndarray
    cost: np.ndarray
    low: np.ndarray  # bounds of y: labels that are forbidden
    high: np.ndarray
    constant: float


def certify(s: Search, edges: np.ndarray, tables: np.ndarray, seconds: float) -> None:
    """Raise the bound of a search with two labels by cycle cuts, and take labels of the program if better."""
    optimize, sparse = needed("scipy.optimize", "graphs"), needed("scipy.sparse", "graphs")
    model = _as_cut(s.unary.numpy(), edges, tables)
    size = max(float(np.abs(model.cost).max(initial=0.0)), np.finfo(float).tiny)
    end = s.elapsed + seconds
    rows = _triangles(model, len(s.labels))
    before = -np.inf
    while not s.proven and s.elapsed < end:
        index, values, right = _stacked(rows)
        A = sparse.csr_matrix((values, index), shape=(len(rows), len(model.cost)))
        found = optimize.linprog(
            model.cost / size, A_ub=A, b_ub=right, bounds=np.stack([model.low, model.high], 1),
            method="highs-ds", options={"time_limit": max(end - s.elapsed, 0.01)},
        )  # fmt: skip
        if found.x is None or found.status != 0:
            return
        # A bound for any multipliers: <cost, y> >= -<right, z> + <cost + A' z, y> for z >= 0.
        z = np.maximum(-found.ineqlin.marginals, 0.0)
        left = model.cost / size + A.T @ z
        terms = np.where(left > 0, left * model.low, left * model.high)
        error = 1e-15 * (np.abs(right * z).sum() + np.abs(terms).sum() + abs(A).T.dot(z).sum() + len(rows))
        bound = model.constant + size * float(terms.sum() - right @ z - error)
        s.raise_bound(bound, "cycle cuts")
        y = found.x.clip(0.0, 1.0)
        labels = s.trial()
        labels[:] = s.labels.new_tensor(y[: len(s.labels)] > 0.5)
        s.model.kick(1, 0, 1e9, labels)
        s.take(labels, "cycle cuts")
        if s.proven:
            return
        slack = right - A @ y
        if bound > before + 1e-9 * size:
            rows = [row for row, rest in zip(rows, slack, strict=True) if rest < _SLACK]
        before = max(before, bound)
        new = list(_violated(model.ends, y, len(s.labels) + 1))
        if not new:
            s.ending = "no cycle is violated"
            return
        rows += new


Row = tuple[
    tuple[int, ...], tuple[float, ...], float
]  # edges, coefficients, right side: <coefficients, y> <= right


def _as_cut(unary: np.ndarray, edges: np.ndarray, tables: np.ndarray) -> Cut:
    n = len(unary)
    forbidden = np.isinf(unary)
    finite = np.where(forbidden, 0.0, unary)
    own = np.where(forbidden.any(1), 0.0, finite[:, 1] - finite[:, 0])
    constant = np.where(forbidden[:, 0], finite[:, 1], finite[:, 0]).sum() + tables[:, 0, 0].sum()
    both = tables[:, 1, 1] + tables[:, 0, 0] - tables[:, 1, 0] - tables[:, 0, 1]
    # x_i x_j = (x_i + x_j - y_ij) / 2
    np.add.at(own, edges[:, 0], tables[:, 1, 0] - tables[:, 0, 0] + both / 2)
    np.add.at(own, edges[:, 1], tables[:, 0, 1] - tables[:, 0, 0] + both / 2)
    keys = edges.min(1, initial=n) * n + edges.max(1, initial=-1)
    pairs, which = np.unique(keys, return_inverse=True)
    between = np.zeros(len(pairs))
    np.add.at(between, which.reshape(-1), -both / 2)
    ends = np.concatenate(
        [np.stack([np.zeros(n, int), np.arange(1, n + 1)], 1), np.stack([pairs // n, pairs % n], 1) + 1]
    )
    low, high = np.zeros(len(ends)), np.ones(len(ends))
    low[:n][forbidden[:, 0]] = 1.0
    high[:n][forbidden[:, 1]] = 0.0
    return Cut(ends, np.concatenate([own, between]), low, high, float(constant))


def _triangles(model: Cut, n: int) -> list[Row]:
    rows: list[Row] = []
    signs = ((1.0, -1.0, -1.0), (-1.0, 1.0, -1.0), (-1.0, -1.0, 1.0), (1.0, 1.0, 1.0))
    for e, (i, j) in enumerate((model.ends[n:] - 1).tolist(), n):
        # The edges from the additional node have the numbers of the nodes.
        rows += [((e, i, j), sign, 2.0 if min(sign) > 0 else 0.0) for sign in signs]
    return rows


def _stacked(rows: list[Row]) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    which = np.repeat(np.arange(len(rows)), [len(row[0]) for row in rows])
    columns = np.array([e for row in rows for e in row[0]], dtype=np.int64)
    values = np.array([c for row in rows for c in row[1]], dtype=np.float64)
    return (which, columns), values, np.array([row[2] for row in rows], dtype=np.float64)


def _violated(ends: np.ndarray, y: np.ndarray, nodes: int) -> Iterator[Row]:
    """The inequalities of closed walks that y violates, at most one per node."""
    sparse, csgraph = needed("scipy.sparse", "graphs"), needed("scipy.sparse.csgraph", "graphs")
    i, j = ends.T
    # Copies v and v + nodes. An edge within a copy costs y, one between them 1 - y.
    start = np.concatenate([i, i + nodes, i, j])
    stop = np.concatenate([j, j + nodes, j + nodes, i + nodes])
    cost = np.concatenate([y, y, 1 - y, 1 - y]) + 1e-7  # short walks first
    graph = sparse.csr_matrix((cost, (start, stop)), shape=(2 * nodes, 2 * nodes))
    number = {(a, b): e for e, (a, b) in enumerate(ends.tolist())}
    number |= {(b, a): e for (a, b), e in number.items()}
    seen = set()
    for begin in range(0, nodes, _AT_ONCE):
        sources = np.arange(begin, min(begin + _AT_ONCE, nodes))
        length, previous = csgraph.dijkstra(
            graph, directed=False, indices=sources, return_predecessors=True, limit=1.0
        )
        for k in np.flatnonzero(length[np.arange(len(sources)), sources + nodes] < 1 - _VIOLATED).tolist():
            row = _inequality(previous[k], begin + k, nodes, number)
            if row not in seen:
                seen.add(row)
                yield row


def _inequality(previous: np.ndarray, v: int, nodes: int, number: dict[tuple[int, int], int]) -> Row:
    """The inequality of the path from v to its copy, given the node before each node."""
    coefficients: dict[int, float] = {}
    odd, at = 0, v + nodes
    while at != v:
        before = int(previous[at])
        e, across = number[before % nodes, at % nodes], (before < nodes) != (at < nodes)
        coefficients[e] = coefficients.get(e, 0.0) + (1.0 if across else -1.0)
        odd += across
        at = before
    used = sorted(coefficients)
    return tuple(used), tuple(coefficients[e] for e in used), odd - 1.0
