"""Small energies for tests of solvers, with their best labellings by enumeration."""

from __future__ import annotations

import itertools

import torch
from helpers import normal, points
from torch import Tensor

from fwcrf import Energy
from fwcrf.kernels import Exact
from fwcrf.pairwise import Matrix, dense

N, L = 6, 3

# Negative on vectors that sum to 0, but not a multiple of the identity there: an ordering of labels.
ORDERED = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]], dtype=torch.float64)


def matrix_energy(seed: int = 0, *, batch: tuple[int, ...] = (), n: int = N, labels: int = L) -> Energy:
    """A random symmetric P without self-edges: neither convex nor concave."""
    P = normal(*batch, n * labels, n * labels, seed=seed)
    same = torch.kron(torch.eye(n), torch.ones(labels, labels)).bool()
    return Energy(Matrix(P.masked_fill(same, 0.0), labels), normal(*batch, n, labels, seed=seed + 1000))


def kernel_energy(seed: int = 0, *, batch: tuple[int, ...] = (), compat=1.0, n: int = N, **more) -> Energy:
    operators = [Exact(points(*batch, n, 2, seed=seed)), Exact(points(*batch, n, 1, seed=seed + 1))]
    return Energy(dense(operators, L, compat=compat, **more), normal(*batch, n, L, seed=seed + 1000))


PROBLEMS = {
    "matrix": lambda **more: matrix_energy(3, **more),
    "potts": lambda **more: kernel_energy(5, **more),
    "repulsive potts": lambda **more: kernel_energy(5, compat=-1.0, **more),
    "ordered": lambda **more: kernel_energy(7, compat=ORDERED, **more),
    "any compatibility": lambda **more: kernel_energy(9, compat=normal(L, L, seed=2), **more),
    "self-edges": lambda **more: kernel_energy(11, self_edges=True, **more),
}


def start(E: Energy) -> Tensor:
    return torch.softmax(-E.unary, -1)


def feasible(*shape: int, seed: int = 0, spread: float = 2.0) -> Tensor:
    """A random point of the simplices."""
    return torch.softmax(spread * normal(*shape, seed=seed), -1)


def labellings(E: Energy) -> Tensor:
    """All of them, (L^n, n)."""
    n, num_labels = E.unary.shape[-2:]
    return torch.tensor(list(itertools.product(range(num_labels), repeat=n)))


def best(E: Energy) -> float:
    """E*, by enumeration, of one image."""
    x = torch.nn.functional.one_hot(labellings(E), E.unary.shape[-1]).to(E.unary)
    flat = x.flatten(-2)
    linear = torch.where(x == 0, 0.0, x * E.unary).sum((-2, -1))
    return float((0.5 * (flat @ E.pairwise.to_dense() * flat).sum(-1) + linear).min())


def image(E: Energy, i: int) -> Energy:
    """One image of a batch of matrix energies."""
    P = E.pairwise.to_dense()
    return Energy(Matrix(P[i] if P.dim() > 2 else P, E.unary.shape[-1]), E.unary[i])
