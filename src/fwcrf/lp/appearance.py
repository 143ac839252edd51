"""Edge appearance probabilities: P(edge is in a uniformly random spanning tree)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fwcrf import _core
from fwcrf.lp.traversal import traverse
from fwcrf.optional import needed

# Largest number of nodes for a dense inverse of the Laplacian.
_SMALL = 1000


def appearance_probabilities(n: int, edges: Tensor) -> Tensor:
    """rho of each edge, ``(m,)`` in float64. It is 1 for a bridge, and sums to n - number of components.

    By Kirchhoff's theorem, rho is the effective resistance of an edge if every edge is a resistor of 1 ohm.

    >>> appearance_probabilities(4, torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3]]))
    tensor([0.6667, 0.6667, 0.6667, 1.0000], dtype=torch.float64)
    """
    graph = traverse(n, edges)
    if graph.is_forest:
        return torch.ones(len(edges), dtype=torch.float64, device=edges.device)
    find = _by_inverse if n <= _SMALL else _by_factors
    rho = find(n, edges.cpu(), graph.roots.cpu())
    return rho.clamp(0.0, 1.0).to(edges.device)


def _by_inverse(n: int, edges: Tensor, roots: Tensor) -> Tensor:
    i, j = edges.unbind(-1)
    A = torch.zeros(n, n, dtype=torch.float64, device="cpu")
    one = torch.ones(len(edges), dtype=torch.float64, device="cpu")
    A.index_put_((i, j), -one, accumulate=True).index_put_((j, i), -one, accumulate=True)
    A.diagonal().sub_(A.sum(-1))
    # Grounding one node per component makes A invertible and does not change resistances between nodes.
    A.diagonal()[roots] += 1
    G = torch.cholesky_inverse(torch.linalg.cholesky(A))
    return G[i, i] + G[j, j] - 2 * G[i, j]


def _by_factors(n: int, edges: Tensor, roots: Tensor) -> Tensor:
    """From the entries of the inverse at the places of the factors, which the edges are among."""
    sparse = needed("scipy.sparse", "graphs")
    splu = needed("scipy.sparse.linalg", "graphs").splu
    i, j = edges.numpy().T
    m = len(i)
    incidence = sparse.csc_matrix(
        (np.repeat([1.0, -1.0], m), (np.concatenate([i, j]), np.tile(np.arange(m), 2))), shape=(n, m)
    )
    ground = np.zeros(n)
    ground[roots.numpy()] = 1.0
    laplacian = (incidence @ incidence.T + sparse.diags(ground)).tocsc()
    # With these options the pivots stay on the diagonal: the factors are L and D L'.
    factors = splu(
        laplacian, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    assert np.array_equal(factors.perm_r, factors.perm_c)
    L = sparse.tril(factors.L, -1).tocsc()
    L.sort_indices()
    first, row = L.indptr.astype(np.int64), L.indices.astype(np.int32)
    at_edges, diagonal = np.empty_like(L.data), np.empty(n)
    _core.selected_inverse(first, row, L.data, factors.U.diagonal(), at_edges, diagonal)
    inverse = sparse.csc_matrix((at_edges, row, first), shape=(n, n))
    i, j = factors.perm_c[i], factors.perm_c[j]
    between = np.asarray(inverse[np.maximum(i, j), np.minimum(i, j)]).ravel()
    return torch.from_numpy(diagonal[i] + diagonal[j] - 2 * between)
