"""A regularizer plus a linear function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fwcrf.regularizers.regularizer import Regularizer, SumOverNodes
from fwcrf.torch_ops.precision import widest
from fwcrf.torch_ops.printed import in_one_line


class PerNode(Regularizer, Protocol):
    def per_node(self, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Linear(SumOverNodes):
    """r(x) = r_g(x) + <linear, x>: the oracle is that of ``g`` at c + linear.

    ``linear`` broadcasts against x and may be +inf, which forbids a label.

    >>> from fwcrf.regularizers import Entropy
    >>> Linear(Entropy(), torch.tensor([[0.0, 1.0]])).argmin(torch.tensor([[1.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    g: PerNode
    linear: Tensor

    __repr__ = in_one_line

    @property
    def quadratic(self) -> bool:
        return self.g.quadratic

    @property
    def strong_convexity(self) -> float | Tensor:
        return self.g.strong_convexity

    def argmin(self, c: Tensor) -> Tensor:
        return self.g.argmin(c + self.linear.to(c))

    def per_node(self, x: Tensor) -> Tensor:
        linear = self.linear.to(x)
        # inf * 0 = 0: a forbidden label with x = 0 costs nothing.
        terms = torch.where(x == 0, 0.0, x * linear)
        return self.g.per_node(x) + terms.sum(-1, dtype=widest(x.device))

    def grad(self, x: Tensor) -> Tensor:
        return self.g.grad(x) + self.linear.to(x)

    def bounds(self, num_labels: int) -> tuple[float, float]:
        with torch.no_grad():
            # Minimal at argmin(0); maximal at a vertex, by convexity.
            low = self.per_node(self.argmin(self.linear.new_zeros(1, num_labels)))
            vertices = torch.eye(num_labels, dtype=torch.float64, device=self.linear.device)
            high = torch.stack([self.g.per_node(v.unsqueeze(0)) for v in vertices], -1) + self.linear
        return low.min().item(), high[high < torch.inf].max().item()

    def curvature(self, d: Tensor) -> Tensor:
        return self.g.curvature(d)
