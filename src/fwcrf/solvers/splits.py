"""Splits (E, r) -> (f, g): Frank-Wolfe linearises f, and minimises g exactly in its oracle.

===============  ============================  ============================  ====================
split            f                             g                             gives
===============  ============================  ============================  ====================
regularized      E                             r                             mf, fw, efw, l2fw
convexified      E - <c, x> + <x, c x>         r                             convex-fw
concave_rest     -<x, c x>                     E + <x, c x> + r              cccp-qp1
concave          E - <x, A x> / 2              r + <x, A x> / 2              cccp-qp2, cmf1
concave_model    E + <x, B x> / 2              r                             cmf2
===============  ============================  ============================  ====================

c is half the absolute row sums of P, so that P + 2 diag(c) is positive semidefinite for potentials of any
sign. B = sum_c diag(k_c) (x) M_c are the self-edges that P lacks, with k_c the diagonals of the kernels:
P + B is the sum of K_c (x) M_c, concave on the simplices if every K_c is positive semidefinite and every
-M_c is so on vectors that sum to 0 (for Potts it is the identity there).

A makes f concave. It is -B if that is known to do so: kernels share one such M, with weights of 0 or more.
Otherwise (other operators, other M, a matrix per kernel) A is L_f times the identity, from Lanczos iteration.
A differs from -B by a function that is linear on the simplices; f and g have it with opposite signs. (The
lattice's K is positive semidefinite only up to its error, and so is the concavity of f.)

The unary stays in f: being linear it could be in g as well, with the same iterates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Full, Potts
from fwcrf.energy import Energy, Objective
from fwcrf.pairwise import Blocks, Diagonal, SelfEdges, Sum
from fwcrf.regularizers import Entropy, Mixed, Regularizer, Simplex, SquaredL2, block_quadratic
from fwcrf.solvers.fista import Fista
from fwcrf.solvers.trace import stationary
from fwcrf.stepsizes import Constant
from fwcrf.torch_ops.printed import in_one_line


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
    """f = E + <x, B x> / 2 with the self-edges B that P lacks, and g = r: another model, which keeps them.

    If the self-edges of P are not known, B is -L_f times the identity.
    """
    edges, L = E.pairwise.self_edges(), E.unary.shape[-1]
    if edges is None:
        return Energy(E.pairwise + -1.0 * _spectral(E), E.unary), r
    return Energy(Sum((E.pairwise, *(Blocks(k, M, L) for k, M in edges))), E.unary), r


def diagonal_dominance(E: Energy) -> Tensor:
    """c = |P| 1 / 2, ``(*batch, n, L)``: P + 2 diag(c) is diagonally dominant."""
    sums = E.pairwise.absolute_row_sums(E.unary.shape[-1])
    return 0.5 * sums.to(E.unary)


def concavity(E: Energy) -> Diagonal | Blocks:
    """A, positive definite and within the nodes, for which E - <x, A x> / 2 is concave on the simplices."""
    common = _common(E.pairwise.self_edges())
    if common is not None:
        k, compat = common
        if isinstance(compat, Potts) and compat.weight.dim() == 0:
            # -M is w times the identity on vectors that sum to 0: no need for a matrix over labels.
            w = compat.weight.to(k)
            return Diagonal(_positive(k * w).unsqueeze(-1).expand(E.unary.shape)) if w >= 0 else _spectral(E)
        M = compat.matrix(E.unary.shape[-1]).to(k)
        inside, identity = _centred(-M), torch.eye(len(M), dtype=M.dtype, device=M.device)
        w, size = inside.trace() / max(1, len(M) - 1), M.detach().abs().amax()
        rounding = 64 * torch.finfo(M.dtype).eps * size
        # The derivative of w is the derivative of A only if M stays a multiple of Potts.
        if not M.requires_grad and (inside - w * _centred(identity)).abs().amax() <= rounding:
            if w >= 0:
                return Diagonal(_positive(k * w).unsqueeze(-1).expand(E.unary.shape))
        else:
            lowest = torch.linalg.eigvalsh(inside.detach())[0].clamp(max=0)
            if lowest >= -1e-5 * size:
                return Blocks(_positive(k), Full(inside - lowest * identity), len(M))
    return _spectral(E)


def plus_quadratic(r: Regularizer, A: Diagonal | Blocks) -> Regularizer:
    """r + <x, A x> / 2, with an oracle in closed form if there is one."""
    entropy = 0.0 if isinstance(r, Simplex) else r.weight if isinstance(r, Entropy) else None
    if entropy is None:
        raise ValueError(f"the regularizer is {r!r}; expected Simplex() or Entropy(weight).")
    if isinstance(A, Blocks):
        return block_quadratic(A.compat.matrix(A.num_labels), A.weight.unsqueeze(-1), None, entropy)
    weight = A.weight[..., :1]
    return SquaredL2(weight) if isinstance(r, Simplex) else Mixed(weight, entropy)


def _spectral(E: Energy) -> Diagonal:
    """L_f I: E - L_f |x|^2 / 2 is concave on the simplices."""
    return Diagonal(_positive(E.smoothness).to(E.unary)[..., None, None].expand(E.unary.shape))


def _positive(weight: Tensor) -> Tensor:
    # A larger A makes f concave too, and oracles divide by the weight.
    return weight.clamp(min=1e-6)


def _common(edges: list[SelfEdges] | None) -> tuple[Tensor, Compatibility] | None:
    """k, M with sum_c diag(k_c) (x) M_c = diag(k) (x) M; None unless all k_c >= 0 and the M_c are one object.

    Matrices that are equal by coincidence do not count: A would jump as soon as one of them is learned.
    """
    if not edges:
        return None
    if any(edge.compat is not edges[0].compat for edge in edges):
        return None
    if not all(bool((edge.weight >= 0).all()) for edge in edges):
        return None
    k = edges[0].weight
    for edge in edges[1:]:
        k = k + edge.weight
    return k, edges[0].compat


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

    __repr__ = in_one_line
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
