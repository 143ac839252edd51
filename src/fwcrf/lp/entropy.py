"""Entropies of a graph, approximated by entropies of its nodes and edges, and their free energies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fwcrf.energy import linear
from fwcrf.lp.forest import marginals
from fwcrf.lp.polytope import LocalPolytope
from fwcrf.lp.relaxation import Relaxation
from fwcrf.torch_ops.native import kept_property
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True, eq=False)
class FreeEnergy:
    """f(x) = E_LP(x) - weight H(x), where

        H(x) = sum_i H(x_i) - sum_ij rho_ij (H(x_i) + H(x_j) - H(x_ij)).

    rho = 1 is Bethe's entropy, exact on forests. Appearance probabilities of spanning trees make f convex on
    the local polytope. With ``eta`` > 0, a parabola replaces z log z for z < eta, and f is smooth. With
    eta = 0 the gradient is infinite at x = 0; the code returns a large finite number there.
    """

    relaxation: Relaxation
    weight: float
    rho: Tensor  # (m,)
    eta: float = 0.0

    __repr__ = in_one_line

    @property
    def unary(self) -> Tensor:
        return self.relaxation.unary

    @property
    def counts(self) -> Tensor:
        """The coefficient of each row's entropy in H, ``(n + m, 1)``; possibly negative for nodes."""
        E = self.relaxation
        rho = self.rho.to(E.unary)
        nodes = rho.new_ones(E.num_nodes).index_add(0, E.edges.flatten(), -rho.repeat_interleave(2))
        return torch.cat([nodes, rho]).unsqueeze(-1)

    def value(self, x: Tensor) -> Tensor:
        if self.eta > 0:
            z = x.clamp(min=self.eta)
            below = (x - self.eta).clamp(max=0.0)
            h = -torch.xlogy(z, z) - (1 + z.log()) * below - below.square() / (2 * self.eta)
            # A forbidden label has no entropy, not even the parabola's value at 0.
            h = h.masked_fill(self.unary == torch.inf, 0.0)
        else:
            h = -torch.xlogy(x, x)
        return linear(self.unary, x) - self.weight * (self.counts * h).sum((-2, -1))

    def value_from_grad(self, x: Tensor, grad: Tensor) -> Tensor:
        return self.value(x)

    def grad(self, x: Tensor) -> Tensor:
        return self.unary + self.weight * self.counts * self._slope(x)

    def slope_along(self, x: Tensor, p: Tensor) -> Callable[[Tensor], Tensor]:
        """The derivative of f(x + a (p - x)) in a, a function of a ``(*batch,)``.

        Where p is 0, as in most entries of a vertex, the entry is (1 - a) x: the sum of the slopes of all
        such entries has a closed form in a, except above eta, where an entry may come below. Only the
        remaining entries are visited for each a.
        """
        d, counts, eta = p - x, self.counts, self.eta
        scaled = (p == 0) & (x < eta) if eta > 0 else p == 0
        near = torch.where(scaled, x, 0.0)
        total = (counts * near).sum((-2, -1))
        second = (counts * (near.square() if eta > 0 else torch.xlogy(near, near))).sum((-2, -1))
        at = (~scaled).flatten().nonzero().squeeze(-1)
        image = at // x.shape[-2:].numel()
        start, direction = x.flatten()[at], d.flatten()[at]
        weights = counts.expand_as(x).flatten()[at] * direction
        fixed = linear(self.unary, d)

        def slope(a: Tensor) -> Tensor:
            z = start + a.flatten()[image] * direction
            each = weights * self._slope(z)
            sums = torch.zeros_like(a).flatten().index_add(0, image, each).view(a.shape)
            rest = 1 - a
            if eta > 0:  # below eta the slope of a parabola
                sums = sums - total * math.log(eta) - rest * second / eta
            else:
                shrunk = rest.clamp(min=torch.finfo(x.dtype).tiny).log()
                sums = sums - total * (1 + shrunk) - second
            return fixed + self.weight * sums

        return slope

    def _slope(self, x: Tensor) -> Tensor:
        """The derivative of x log x, or of its continuation below eta."""
        z = x.clamp(min=max(self.eta, torch.finfo(x.dtype).tiny))
        slope = 1 + z.log()
        return slope + (x - z) / self.eta if self.eta > 0 else slope

    def hessian(self, d: Tensor) -> Tensor:
        raise TypeError(
            "a free energy is not quadratic, so LineSearch() does not apply; expected "
            "step=SegmentSearch(), a number, or a rule that depends on k alone."
        )

    @property
    def smoothness(self) -> Tensor:
        """L_f of the smoothed entropy. Raises for eta = 0, where f has no Lipschitz gradient."""
        if not self.eta > 0:
            raise TypeError(
                "the gradient of this free energy is infinite where a probability is 0, so Adaptive() "
                "does not apply; expected step=SegmentSearch(), or solver 'lp-rho' with its eta."
            )
        largest = self.weight * self.counts.amax().clamp(min=0.0) / self.eta
        return largest.expand(self.unary.shape[:-2])


@dataclass(frozen=True, eq=False)
class ForestEntropy:
    """g = -weight H over the local polytope of a forest, where H is the entropy of the joint distribution.

    The oracle is exact, by dynamic programming: one full step of Frank-Wolfe gives the marginals.
    """

    polytope: LocalPolytope  # of a forest
    weight: float

    __repr__ = in_one_line
    quadratic = False

    @property
    def strong_convexity(self) -> float:
        return 0.0

    @kept_property
    def _entropy(self) -> FreeEnergy:
        E = self.polytope.relaxation
        nothing = E.unary.masked_fill(E.unary < torch.inf, 0.0)
        return FreeEnergy(replace(E, unary=nothing), self.weight, nothing.new_ones(len(E.edges)))

    def argmin(self, c: Tensor) -> Tensor:
        E = self.polytope.relaxation
        return E.join(*marginals(self.polytope.graph, E.nodes(c) / self.weight, E.pairs(c) / self.weight))

    def value(self, x: Tensor) -> Tensor:
        return self._entropy.value(x)

    def grad(self, x: Tensor) -> Tensor:
        return self._entropy.grad(x)

    def curvature(self, d: Tensor) -> Tensor:
        raise TypeError("an entropy is not quadratic, so its curvature depends on the point.")

    def bounds(self, num_labels: int) -> tuple[float, float]:
        E = self.polytope.relaxation
        return -self.weight * E.num_nodes * math.log(num_labels), 0.0
