"""Splits (E, r) -> (f, g): Frank-Wolfe linearises f, and minimises g exactly in its oracle.

===============  ============================  ============================  ====================
split            f                             g                             gives
===============  ============================  ============================  ====================
regularized      E                             r                             mf, fw, efw, l2fw
convexified      E - <c, x> + <x, c x>         r                             convex-fw
concave_rest     -<x, c x>                     E + <x, c x> + r              cccp-qp1
concave          E - <x, A x> / 2              r + <x, A x> / 2              cccp-qp2, cmf1
concave_model    E - <x, A x> / 2              r                             cmf2
===============  ============================  ============================  ====================

c is half the absolute row sums of P, so that P + 2 diag(c) is positive semidefinite for potentials of any
sign. A makes f concave. K (x) M is concave for a positive semidefinite kernel K if -M is positive
semidefinite on vectors that sum to 0 (for Potts it is the identity there), so that the self-edges that P
lacks are enough: A = diag(k) (x) -M with k the diagonals of the kernels. Where that is not known to hold
(other operators, other M) A is L_f times the identity, from Lanczos iteration. (The lattice's K is positive
semidefinite only up to its error, and so is the concavity of f.)

The unary stays in f: being linear it could be in g as well, with the same iterates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fwcrf.energy import Energy, Objective
from fwcrf.pairwise import Blocks, Diagonal, SelfEdges
from fwcrf.regularizers import Entropy, Mixed, Regularizer, Simplex, SquaredL2, block_quadratic
from fwcrf.solvers.fista import Fista
from fwcrf.solvers.trace import stationary
from fwcrf.stepsizes import Constant


def convexified(E: Energy, r: Regularizer) -> tuple[Objective, Regularizer]:
    """A convex f that equals E on labellings: <x, c x> = <c, x> there."""
    c = diagonal_dominance(E)
    return Energy(E.pairwise + Diagonal(2 * c), E.unary - c), r


def concave_rest(
    E: Energy, r: Regularizer, *, tol: float = 1e-4, max_steps: int = 200
) -> tuple[Objective, Regularizer]:
    """g = E + <x, c x>, which is convex, and f = -<x, c x>. r must be 0.

    The oracle is then a quadratic program over all nodes, solved by FISTA until S(x) is below ``tol``
    relative to its value, or ``max_steps`` steps are done, each an application of P.
    """
    if not isinstance(r, Simplex):
        raise ValueError(f"the regularizer is {r!r}; expected Simplex(): this split has no room for another.")
    c = diagonal_dominance(E)
    f = Energy(Diagonal(-2 * c), torch.zeros_like(E.unary))
    g = Energy(E.pairwise + Diagonal(2 * c), E.unary)
    return f, ConvexQuadratic(g, 4 * c.amax((-2, -1)), tol, max_steps)


def concave(E: Energy, r: Regularizer) -> tuple[Objective, Regularizer]:
    """f = E - <x, A x> / 2, which is concave, and g = r + <x, A x> / 2."""
    A = concavity(E)
    return Energy(E.pairwise + -1.0 * A, E.unary), plus_quadratic(r, A)


def concave_model(E: Energy, r: Regularizer) -> tuple[Objective, Regularizer]:
    """f = E - <x, A x> / 2, which is concave, and g = r: another model, which keeps its self-edges."""
    return Energy(E.pairwise + -1.0 * concavity(E), E.unary), r


def diagonal_dominance(E: Energy) -> Tensor:
    """c = |P| 1 / 2, ``(*batch, n, L)``: P + 2 diag(c) is diagonally dominant."""
    sums = E.pairwise.absolute_row_sums(E.unary.shape[-1])
    return 0.5 * sums.to(E.unary)


def concavity(E: Energy) -> Diagonal | Blocks:
    """A, positive definite and within the nodes, for which E - <x, A x> / 2 is concave on the simplices."""
    edges = E.pairwise.self_edges()
    common = None if edges is None else _common(edges)
    if common is not None:
        k, M = common
        inside = _centred(-M)
        w = inside.trace() / max(1, len(M) - 1)
        tol = 1e-5 * M.abs().amax()
        if (k >= 0).all() and w >= 0:
            if (inside - w * _centred(torch.eye(len(M)).to(M))).abs().amax() <= tol:
                return Diagonal(_positive(k * w).unsqueeze(-1).expand(E.unary.shape))
            if torch.linalg.eigvalsh(inside.detach())[0] >= -tol:
                return Blocks(_positive(k), inside)
    return Diagonal(_positive(E.smoothness).to(E.unary)[..., None, None].expand(E.unary.shape))


def plus_quadratic(r: Regularizer, A: Diagonal | Blocks) -> Regularizer:
    """r + <x, A x> / 2, with an oracle in closed form if there is one."""
    entropy = 0.0 if isinstance(r, Simplex) else r.weight if isinstance(r, Entropy) else None
    if entropy is None:
        raise ValueError(f"the regularizer is {r!r}; expected Simplex() or Entropy(weight).")
    if isinstance(A, Blocks):
        return block_quadratic(A.matrix, A.weight.unsqueeze(-1), None, entropy)
    weight = A.weight[..., :1]
    return SquaredL2(weight) if isinstance(r, Simplex) else Mixed(weight, entropy)


def _positive(weight: Tensor) -> Tensor:
    # A larger A makes f concave too, and oracles divide by the weight.
    return weight.clamp(min=1e-6)


def _common(edges: list[SelfEdges]) -> tuple[Tensor, Tensor] | None:
    """k, M with sum_c diag(k_c) (x) M_c = diag(k) (x) M; None unless the M_c are multiples of each other."""
    weight, M = edges[0]
    norm = M.square().sum()
    for other, N in edges[1:]:
        factor = (N * M).sum() / norm
        if not torch.allclose(N, factor * M, atol=1e-6 * float(M.detach().abs().amax())):
            return None
        weight = weight + factor * other
    return weight, M


def _centred(M: Tensor) -> Tensor:
    """M restricted to vectors that sum to 0."""
    M = M - M.mean(-1, keepdim=True)
    return M - M.mean(-2, keepdim=True)


@dataclass(frozen=True)
class ConvexQuadratic:
    """A convex energy as g: its oracle is a minimisation over all nodes together, by FISTA."""

    energy: Energy
    largest: Tensor  # (*batch,): a bound on the eigenvalues of its P
    tol: float
    max_steps: int
    quadratic = True

    @property
    def strong_convexity(self) -> float:
        return 0.0

    def argmin(self, c: Tensor) -> Tensor:
        inner = Energy(self.energy.pairwise, self.energy.unary + c)
        solver = Fista(Constant(1 / self.largest.clamp(min=1.0)))
        start = SquaredL2(self.largest.to(c)[..., None, None].clamp(min=1.0)).argmin(inner.unary)
        state: Any = solver.init(inner, start)
        for k in range(self.max_steps):
            state, done = stationary(inner, state, self.tol)
            if done:
                break
            state = solver.step(inner, state, k)
        return state.x

    def value(self, x: Tensor) -> Tensor:
        return self.energy.value(x)

    def grad(self, x: Tensor) -> Tensor:
        return self.energy.grad(x)

    def curvature(self, d: Tensor) -> Tensor:
        return self.energy.curvature(d)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        raise TypeError("this g is the energy itself; the regularizer of its split is 0.")
