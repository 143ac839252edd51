"""Linear programs over the local polytope, solved by HiGHS."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fwcrf.lp.relaxation import Relaxation
from fwcrf.optional import needed


class Program:
    """min <c, x> over the local polytope of one image. Forbidden labels are not variables of the program."""

    def __init__(self, relaxation: Relaxation, theta: Tensor) -> None:
        self.relaxation = relaxation
        self.allowed: np.ndarray = (theta < torch.inf).cpu().numpy()  # (n + m, L L)

    def solve(self, c: Tensor) -> tuple[Tensor, Tensor]:
        """An optimal vertex, ``(n + m, L L)``, and dual messages ``(m, 2, L)``, optimal up to rounding."""
        optimize = needed("scipy.optimize", "graphs")
        E = self.relaxation
        costs = c.detach().cpu().numpy()[self.allowed]
        # Scale costs to at most 1, because the tolerances of HiGHS are absolute.
        scale = max(float(np.abs(costs).max()), np.finfo(float).tiny)
        constraints, right = self._constraints
        found = optimize.linprog(costs / scale, A_eq=constraints, b_eq=right, method="highs")
        if found.status != 0:
            raise RuntimeError(f"HiGHS could not solve the program over the local polytope: {found.message}")
        x = np.zeros(self.allowed.shape)
        x[self.allowed] = found.x.clip(0.0, 1.0)
        y = np.zeros(2 * len(E.edges) * E.num_labels)
        y[self._kept] = -scale * found.eqlin.marginals[E.num_nodes :]
        messages = torch.from_numpy(y).unflatten(0, (len(E.edges), 2, E.num_labels))
        return torch.from_numpy(x).to(c), messages.to(c)

    @cached_property
    def _kept(self) -> np.ndarray:
        """Mask ``(m 2 L,)`` of the equations A x = 0 of allowed labels; the remaining ones are 0 = 0."""
        E = self.relaxation
        return self.allowed[: E.num_nodes, : E.num_labels][E.edges.cpu().numpy()].ravel()

    @cached_property
    def _constraints(self):
        """Matrix and right side of the equations: rows of nodes sum to 1, and A x = 0."""
        sparse = needed("scipy.sparse", "graphs")
        E = self.relaxation
        n, m, L = E.num_nodes, len(E.edges), E.num_labels
        column = np.full(self.allowed.shape, -1)
        column[self.allowed] = np.arange(self.allowed.sum())
        nodes, pairs = column[:n, :L], column[n:].reshape(m, L, L)
        equation = n + np.arange(m * 2 * L).reshape(m, 2, L)
        ends = nodes[E.edges.cpu().numpy()]  # (m, 2, L)
        blocks = [
            (np.broadcast_to(np.arange(n)[:, None], (n, L)), nodes, 1.0),
            (np.broadcast_to(equation[:, 0, :, None], pairs.shape), pairs, 1.0),
            (np.broadcast_to(equation[:, 1, None, :], pairs.shape), pairs, 1.0),
            (equation, ends, -1.0),
        ]
        rows = np.concatenate([row[col >= 0] for row, col, _ in blocks])
        columns = np.concatenate([col[col >= 0] for _, col, _ in blocks])
        values = np.concatenate([np.full((col >= 0).sum(), value) for _, col, value in blocks])
        A = sparse.csr_matrix((values, (rows, columns)), shape=(n + 2 * m * L, self.allowed.sum()))
        keep = np.concatenate([np.ones(n, bool), self._kept])
        right = np.concatenate([np.ones(n), np.zeros(2 * m * L)])
        return A[keep].tocsc(), right[keep]
