"""The protocol of regularizers, and checks of their weights."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fwcrf.inputs.numbers import real
from fwcrf.torch_ops.magnitudes import LAMBDA
from fwcrf.torch_ops.native import has_values

# A number, a learnable scalar, or one per node: (*batch or 1, n or 1, 1), broadcast against x.
Weight = float | Tensor


class Regularizer(Protocol):
    """A convex g = r + indicator over a product of simplices."""

    @property
    def quadratic(self) -> bool:
        """True if r is quadratic; then a line search has a closed form by ``curvature``."""
        ...

    @property
    def strong_convexity(self) -> float | Tensor:
        """The largest known sigma for which g - sigma/2 |x|^2 is convex on the simplices.

        A tensor if the weight is a tensor; one number per image for weights per node.
        """
        ...

    def argmin(self, c: Tensor) -> Tensor:  # (*batch, n, L)
        """argmin_p <c, p> + g(p) over the simplex of each row.

        An entry +inf of ``c`` forbids the label. At least one entry per row has to be finite.
        """
        ...

    def value(self, x: Tensor) -> Tensor:
        """g(x) per image for feasible x, ``(*batch,)`` in float64."""
        ...

    def grad(self, x: Tensor) -> Tensor:
        """The gradient of r. For an entropy it is -inf where x is 0."""
        ...

    def bounds(self, num_labels: int) -> tuple[float, float]:
        """(m, M) with m <= r(x_i) <= M for every node i and every x_i on its simplex."""
        ...

    def curvature(self, d: Tensor) -> Tensor:
        """<d, Hess r d> per image, ``(*batch,)`` in float64. Raises if r is not quadratic."""
        ...


class SumOverNodes:
    """Base class: ``value`` and ``quadratic`` of an r that is a sum over nodes."""

    @property
    def quadratic(self) -> bool:
        return False

    def per_node(self, x: Tensor) -> Tensor:
        """r of each row, ``(*batch, n)`` in float64."""
        raise NotImplementedError

    def value(self, x: Tensor) -> Tensor:
        """g(x) per image for feasible x, ``(*batch,)`` in float64."""
        return self.per_node(x).sum(-1)

    def curvature(self, d: Tensor) -> Tensor:
        """<d, Hess r d> per image. Raises unless a quadratic r overrides it."""
        raise TypeError(
            f"{type(self).__name__} is not quadratic, so its curvature depends on the point; "
            "search along the segment with value() instead."
        )


def check_weight(weight: Weight, name: str, *, zero: bool = False) -> None:
    """Raise unless a weight is positive (with ``zero``: 0 or more), and a scalar or one per node."""
    least, most = LAMBDA
    kind = "a number of 0, or" if zero else "a positive number (the paper's lambda),"
    expected = f"{kind} from {least:g} to {most:g}"
    if isinstance(weight, Tensor):
        if not weight.is_floating_point():
            raise TypeError(f"{name} is a tensor of {weight.dtype}; expected floating point numbers.")
        if weight.dim() == 1 or (weight.dim() and weight.shape[-1] != 1):
            raise ValueError(
                f"{name} has shape {tuple(weight.shape)}; expected () for one weight, or (*batch, n, 1) for "
                "one per node: use unsqueeze(-1)."
            )
        if not has_values(weight):
            return
        good = (weight >= least) & (weight <= most) | (zero & (weight == 0))
        if not good.all():
            raise ValueError(
                f"{name} has {int((~good).sum())} of {good.numel()} entries that are not {expected}; the "
                f"smallest is {weight.min().item():.6g}, the largest {weight.max().item():.6g}. To keep a "
                "learnable weight positive, use the exponential of a parameter."
            )
    else:
        real(weight, name, expected, lambda w: (zero and w == 0) or least <= w <= most)


def like(weight: Weight, x: Tensor) -> Weight:
    """The weight, a tensor converted to the dtype and device of x."""
    return weight.to(x) if isinstance(weight, Tensor) else weight


def over_nodes(weight: Weight) -> Weight:
    """The weight without the axis of labels, to broadcast against (*batch, n)."""
    return weight.squeeze(-1) if isinstance(weight, Tensor) and weight.dim() else weight


def smallest(weight: Weight) -> Weight:
    """The smallest weight of an image's nodes: a number, or a tensor that broadcasts against (*batch,)."""
    return weight.amin((-2, -1)) if isinstance(weight, Tensor) and weight.dim() else weight


def extremes(weight: Weight) -> tuple[float, float]:
    """The smallest and largest weight of all nodes."""
    if isinstance(weight, Tensor):
        return weight.min().item(), weight.max().item()
    return weight, weight


def scaled(c: Tensor, weight: Weight) -> tuple[Tensor, float]:
    """A tensor and a number with product -c / weight. Its gradient in the weight is finite for c = inf."""
    if not isinstance(weight, Tensor):
        return c, -1 / weight
    forbidden = c == torch.inf
    product = c.masked_fill(forbidden, 0.0) / weight.to(c)
    return product.masked_fill(forbidden, torch.inf), -1.0
