"""The energy E(x) = <x, P x> / 2 + <u, x> over a product of simplices. Lower is better.

Values are per image, and summed in float64 for every dtype of x: a float32 sum over millions of pixels
loses the digits in which two solvers differ.

A unary energy of +inf forbids a label. It stays +inf in every gradient, so that every oracle returns 0
for the label. ``linear`` and ``descend`` avoid the product of 0 and infinity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from fwcrf.pairwise import Pairwise, inner
from fwcrf.spectrum import extreme_eigenvalues
from fwcrf.torch_ops.layout import unary_from_scores
from fwcrf.torch_ops.native import FLOATS, has_values
from fwcrf.torch_ops.simplex import softmax

__all__ = ["Energy", "Objective", "descend", "inner", "linear", "unary_from_logits"]


def linear(c: Tensor, x: Tensor) -> Tensor:
    """<c, x> per image, ``(*batch,)``, in float64; an infinite cost times x = 0 counts as 0.

    >>> linear(torch.tensor([[1.0, torch.inf]]), torch.tensor([[2.0, 0.0]]))
    tensor(2., dtype=torch.float64)
    """
    return inner(c.masked_fill((x == 0) & torch.isinf(c), 0.0), x)


def descend(x: Tensor, a: float | Tensor, grad: Tensor) -> Tensor:
    """x - a grad; -inf where the gradient is +inf, even for a = 0."""
    if isinstance(a, Tensor):
        a = a.to(x)[..., None, None]
    elif a == 1:
        return x - grad
    forbidden = grad == torch.inf
    return (x - a * grad.masked_fill(forbidden, 0.0)).masked_fill(forbidden, -torch.inf)


def unary_from_logits(logits: Tensor, *, labels_last: bool = True) -> Tensor:
    """u = -logits, ``(*batch, n, L)``; without ``labels_last`` the logits are ``(*batch, L, n)``.

    A logit of -inf forbids its label; a logit of +inf forbids every other label of its pixel.

    >>> unary_from_logits(torch.tensor([[1.0, -2.0], [0.5, torch.inf], [-torch.inf, 3.0]]))
    tensor([[-1.,  2.],
            [inf, -0.],
            [inf, -3.]])
    """
    return _unary(logits, labels_last)[0]


def _unary(logits: Tensor, labels_last: bool) -> tuple[Tensor, bool]:
    """u = -logits, and True if every entry is known to be finite."""
    unary, extent = unary_from_scores(logits, labels_last=labels_last)
    if extent is not None:
        if extent.finite:
            return unary, True
        if torch.isnan(logits).any():
            raise ValueError(
                f"logits has {int(torch.isnan(logits).sum())} NaN entries, of {logits.numel()}; expected "
                "numbers, -inf where a label is forbidden, or +inf where it is the only one allowed. Pixels "
                "without scores can be left out of refinement: ignore= takes a mask."
            )
    chosen = unary == -torch.inf
    pinned = chosen.any(-1, keepdim=True)
    return unary.masked_fill(pinned, torch.inf).masked_fill(chosen, -0.0), False


class Objective(Protocol):
    """A function f to minimise, as solvers use it."""

    @property
    def unary(self) -> Tensor:
        """``(*batch, n, L)``, of the shape, dtype and device of x; +inf where a label is forbidden."""
        ...

    def value(self, x: Tensor) -> Tensor:
        """f(x) per image, ``(*batch,)``."""
        ...

    def grad(self, x: Tensor) -> Tensor: ...

    def hessian(self, d: Tensor) -> Tensor:
        """The Hessian times d, of a quadratic f: grad(x + a d) = grad(x) + a hessian(d)."""
        ...

    def value_from_grad(self, x: Tensor, grad: Tensor) -> Tensor:
        """f(x), given the gradient at x, which may save most of the work."""
        ...

    @property
    def smoothness(self) -> Tensor:
        """L_f per image, ``(*batch,)``: f - L_f/2 |x|^2 is concave on the simplices."""
        ...


@dataclass(frozen=True)
class Energy:
    """E(x) = <x, P x> / 2 + <u, x>.

    A unary energy of +inf forbids a label; a row in which every label is forbidden is an error.

    >>> import torch
    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> E = Energy(dense([Exact(torch.zeros(2, 1))], num_labels=2), unary=torch.zeros(2, 2))
    >>> E.of_labels(torch.tensor([0, 1])), E.of_labels(torch.tensor([1, 1]))
    (tensor(1., dtype=torch.float64), tensor(0., dtype=torch.float64))
    """

    pairwise: Pairwise
    unary: Tensor  # (*batch, n, L)
    checked: bool = field(
        default=False, repr=False, compare=False, kw_only=True
    )  # the unary is valid and finite

    def __post_init__(self) -> None:
        if self.checked:
            return
        u = self.unary
        if not isinstance(u, Tensor) or u.dtype not in FLOATS:
            kind = u.dtype if isinstance(u, Tensor) else type(u).__name__
            raise TypeError(f"unary is {kind}; expected a float32 or float64 tensor.")
        if u.dim() < 2 or u.numel() == 0:
            raise ValueError(
                f"unary has shape {tuple(u.shape)}; expected (*batch, n, labels), none of them 0."
            )
        if not has_values(u) or torch.isfinite(u.sum()):
            return
        if torch.isnan(u).any() or (u == -torch.inf).any():
            raise ValueError(
                "unary has NaN or -inf entries; expected finite energies, or +inf where a label is "
                "forbidden. To force a label, forbid all other labels."
            )
        if (u == torch.inf).all(-1).any():
            raise ValueError("unary is +inf for every label of some node; leave at least one label allowed.")

    @staticmethod
    def of_logits(pairwise: Pairwise, logits: Tensor, *, labels_last: bool = True) -> Energy:
        """The energy with u = -logits: see ``unary_from_logits``."""
        unary, finite = _unary(logits, labels_last)
        return Energy(pairwise, unary, checked=finite)

    def value(self, x: Tensor) -> Tensor:
        """E(x) per image, ``(*batch,)``."""
        return 0.5 * inner(x, self.pairwise(x)) + linear(self.unary, x)

    def value_from_grad(self, x: Tensor, grad: Tensor) -> Tensor:
        """E(x) = <grad + u, x> / 2, given the gradient at x."""
        return 0.5 * (linear(grad, x) + linear(self.unary, x))

    def grad(self, x: Tensor) -> Tensor:
        """P x + u."""
        return self.pairwise.plus(x, self.unary)

    def hessian(self, d: Tensor) -> Tensor:
        """P d."""
        return self.pairwise(d)

    def curvature(self, d: Tensor) -> Tensor:
        """<d, P d> per image: E(x + a d) = E(x) + a <grad, d> + a^2 / 2 curvature."""
        return inner(d, self.hessian(d))

    @property
    def smoothness(self) -> Tensor:
        """L_f, ``(*batch,)``: the largest eigenvalue of P on directions within the simplices, at least 0.

        Such directions sum to 0 in every row. All other directions may have much larger eigenvalues: on the
        simplices, Potts with a Gaussian kernel is almost concave. Computed once, by Lanczos iteration.
        """
        return self._smoothness

    @cached_property
    def _smoothness(self) -> Tensor:
        def tangent(x: Tensor) -> Tensor:
            y = self.pairwise(x - x.mean(-1, keepdim=True))
            return y - y.mean(-1, keepdim=True)

        found = extreme_eigenvalues(tangent, self.unary.detach())
        return (found.highest + found.highest_error).clamp(min=0)

    def start(self) -> Tensor:
        """softmax(-unary), a new tensor: the point from which solvers start."""
        return softmax(self.unary, -1.0)

    def of_labels(self, labels: Tensor) -> Tensor:
        """E of a labelling ``(*batch, n)`` of integers, ``(*batch,)``."""
        num_labels = self.unary.shape[-1]
        if labels.dtype.is_floating_point or labels.dtype == torch.bool:
            raise TypeError(f"labels has dtype {labels.dtype}; expected integers.")
        if labels.shape != self.unary.shape[:-1]:
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}; expected {tuple(self.unary.shape[:-1])}: "
                "one label per node."
            )
        if not torch.compiler.is_compiling() and (labels.min() < 0 or labels.max() >= num_labels):
            raise ValueError(
                f"labels run from {labels.min()} to {labels.max()}; expected 0 to {num_labels - 1}."
            )
        x = torch.nn.functional.one_hot(labels.long(), num_labels).to(self.unary.dtype)
        return self.value(x)
