"""What a dense model settles without a search: labels that no optimum has, and a lower bound on the energy.

For a term K (x) M with K >= 0, label t of pixel i costs at least

    u_i(t) - u_i(s) + sum_j K_ij min over the labels l of j of (M(t, l) - M(s, l))

more than label s, whatever the labels of all other pixels. If that is positive for some s, no labelling of
least energy gives t to i (dead-end elimination). Fewer labels elsewhere raise the minima, so that more labels
can be left out: for Potts, rounds follow until nothing changes. With the labels A_i that are left,

    E >= sum_i min over s in A_i of u_i(s) + 1/2 sum_j K_ij min over l in A_j of M(s, l).

For Potts the bound rises further by messages between all pixels, which cost two applications of K a step. For
any numbers a_i(s) from 0 to 1, with which an edge moves K_ij (a_j(s) - a_i(s)) / 2 to the cost of label s at
i and as much away at j, no labelling's edges have moved more than they cost:

    E >= sum_i min over s in A_i of u_i(s) + 1/2 (sum_j K_ij a_j(s) - a_i(s) sum_j K_ij).

With a = 1 for the labels that are left out this is the bound above; steps of a subgradient method raise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.compatibility import Compatibility, Potts
from fwcrf.energy import Energy
from fwcrf.kernels.operator import Operator
from fwcrf.pairwise import Dense, Kronecker, Pairwise
from fwcrf.torch_ops.native import with_memory_errors
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True, eq=False)
class Certificate:
    """Labels that a labelling of least energy may have, and a bound on its energy."""

    allowed: Tensor  # (*batch, n, L), bool
    bound: Tensor  # (*batch,), float64

    __repr__ = in_one_line

    @property
    def settled(self) -> Tensor:
        """True for pixels with one label left: no neighbourhood can overturn it, ``(*batch, n)``."""
        return self.allowed.sum(-1) == 1


@with_memory_errors
@torch.no_grad()
def certificate(E: Energy, rounds: int = 10, steps: int = 12) -> Certificate:
    """Labels that no optimum has are left out, and a lower bound on the energy of every labelling follows.

    For dense models without self-edges whose kernels have no negative entries, as Gaussians and their
    approximations. A round applies each kernel to two arrays of the size of the scores for Potts with one
    weight, and so does each of the ``steps`` that raise the bound; other matrices over labels take one round
    and no steps. A margin for rounding errors is kept.

    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> u = torch.tensor([[0.0, 2.0], [0.5, 0.0], [0.0, 9.0]])
    >>> found = certificate(Energy(dense([Exact(torch.zeros(3, 1))], num_labels=2), u))
    >>> found.allowed.tolist(), round(float(found.bound), 3)
    ([[True, False], [True, False], [True, False]], 0.5)
    """
    terms = _terms(E.pairwise)
    if terms is None:
        raise TypeError(
            f"certificate of an energy with {type(E.pairwise).__name__}; expected kernels with matrices over "
            "labels. SparseMRF(...).solve() bounds the energy of graphs."
        )
    if _self_edges(terms):
        raise ValueError("a kernel has self-edges; expected a model with self_edges=False.")
    u = E.unary
    allowed = (u < torch.inf).expand(*u.shape)
    potts = [
        (K, M.weight)
        for K, M in terms
        if isinstance(M, Potts) and M.weight.dim() == 0 and bool(M.weight >= 0)
    ]
    sums = [K.row_sums().unsqueeze(-1) for K, _ in terms]
    size = sum(s * _largest(M, u.shape[-1]) for s, (_, M) in zip(sums, terms, strict=True))
    finite = u.masked_fill(u == torch.inf, 0.0)
    margin = 64 * torch.finfo(u.dtype).eps * (finite.abs().amax(-1, keepdim=True) + size)
    if len(potts) == len(terms):
        for _ in range(rounds):
            now = _left_by_potts(u, allowed, potts, margin)
            if torch.equal(now, allowed):
                break
            allowed = now
        start = (~allowed).to(u)
        others = sum(w.to(u) * K(start) for K, w in potts)
        each = [w.to(u) * s for s, (_, w) in zip(sums, potts, strict=True)]
        weights = sum(each, torch.zeros_like(sums[0]))
        raised = _raised(u.masked_fill(~allowed, torch.inf), start, potts, weights, steps)
    else:
        raised = None
        allowed = _left_in_general(u, terms, sums, margin)
        others = sum(K(_least(M.matrix(u.shape[-1]).to(u), allowed)) for K, M in terms)
    rows = (u + 0.5 * others).masked_fill(~allowed, torch.inf).amin(-1)
    bound = rows.sum(-1, dtype=torch.float64)
    bound = bound if raised is None else torch.maximum(bound, raised)
    return Certificate(allowed, bound - margin.squeeze(-1).expand(rows.shape).sum(-1, dtype=torch.float64))


# Of the steps: their size, and the weight of an entropy that smooths the minima, in units of the mean weight
# of a pixel's edges, at first and its fall. Chosen on two images of the first half of the VOC list.
_STEP, _SMOOTH, _FALL = 0.8, 0.15, 0.8


def _raised(
    u: Tensor,
    a: Tensor,
    terms: Sequence[tuple[Operator | _Average, Tensor]],
    weights: Tensor,
    steps: int,
) -> Tensor:
    """The best bound of the steps from a, ``(*batch,)``; +inf in u leaves labels out."""

    def applied(x: Tensor) -> Tensor:
        return sum((w.to(x) * K(x) for K, w in terms), torch.zeros_like(x))

    best = torch.full(u.shape[:-2], -torch.inf, dtype=torch.float64, device=u.device)
    smooth = _SMOOTH * weights.mean((-2, -1), keepdim=True).clamp(min=torch.finfo(u.dtype).tiny)
    for k in range(steps):
        h = u + 0.5 * (applied(a) - weights * a)
        best = torch.maximum(best, h.amin(-1).sum(-1, dtype=torch.float64))
        y = torch.softmax(-h / (smooth * _FALL**k), -1)
        share = applied(y) / weights.clamp(min=torch.finfo(u.dtype).tiny)
        a = (a + _STEP * (share - y)).clamp(0.0, 1.0)
    return best


def quick_bound(E: Energy) -> Tensor | None:
    """The bound of ``certificate`` after one round, ``(*batch,)``; None for other models than its own.

    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> u = torch.tensor([[0.0, 2.0], [0.5, 0.0], [0.0, 9.0]])
    >>> round(float(quick_bound(Energy(dense([Exact(torch.zeros(3, 1))], num_labels=2), u))), 3)
    0.5
    """
    terms = _terms(E.pairwise)
    if terms is None or not all(K.nonnegative for K, _ in terms) or _self_edges(terms):
        return None
    return certificate(E, rounds=1, steps=0).bound


_Terms = Sequence[tuple["Operator | _Average", Compatibility]]


def _terms(P: Pairwise) -> _Terms | None:
    """Kernels and matrices of P; None for other models."""
    parts = P._parts() if isinstance(P, Dense) else []
    if not parts or not all(isinstance(part, Kronecker) for part in parts):
        return None
    kernels = [part.operator for part in parts]  # type: ignore[attr-defined]
    both = [K if K.is_symmetric else _Average(K) for K in kernels]
    return list(zip(both, (part.compat for part in parts), strict=True))  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class _Average:
    """(K + K') / 2, which has the energy of K on labels."""

    of: Operator

    __repr__ = in_one_line

    @property
    def nonnegative(self) -> bool:
        return self.of.nonnegative

    def __call__(self, x: Tensor) -> Tensor:
        return 0.5 * (self.of(x) + self.of.T(x))

    def row_sums(self) -> Tensor:
        return 0.5 * (self.of.row_sums() + self.of.T.row_sums())

    def diagonal(self) -> Tensor:
        return self.of.diagonal()


def _self_edges(terms: _Terms) -> bool:
    return any(float(K.diagonal().abs().amax()) > 1e-4 * float(K.row_sums().amax()) for K, _ in terms)


def _largest(M: Compatibility, num_labels: int) -> float:
    return float(M.weight.abs().amax() if isinstance(M, Potts) else M.matrix(num_labels).abs().amax())


def _least(M: Tensor, allowed: Tensor) -> Tensor:
    """min over the labels l that are left of M(s, l), ``(*batch, n, L)``."""
    return torch.stack([row.expand_as(allowed).masked_fill(~allowed, torch.inf).amin(-1) for row in M], -1)


def _left_by_potts(
    u: Tensor, allowed: Tensor, terms: Sequence[tuple[Operator | _Average, Tensor]], margin: Tensor
) -> Tensor:
    """M(t, l) - M(s, l) is -w for l = t, w for l = s, else 0: w if j has label s only, -w if j may have t."""
    single = (allowed & (allowed.sum(-1, keepdim=True) == 1)).to(u)
    likely, sure = (sum(w.to(u) * K(a) for K, w in terms) for a in (allowed.to(u), single))
    # Of labels that j has for sure, w [l = s] counts for s, and -w [l = t] is in `likely` already.
    best = (u - sure).masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
    return allowed & (u - likely <= best + margin)


def _left_in_general(u: Tensor, terms: _Terms, sums: Sequence[Tensor], margin: Tensor) -> Tensor:
    allowed = u < torch.inf
    found = allowed.clone()
    matrices = [M.matrix(u.shape[-1]).to(u) for _, M in terms]
    for s in range(u.shape[-1]):
        least = sum(k * (M - M[s]).amin(-1) for k, M in zip(sums, matrices, strict=True))  # of each t
        other = u[..., s : s + 1]
        found &= ~((u - other + least > margin) & allowed[..., s : s + 1])
    return found
