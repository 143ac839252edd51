"""The energy E(x) = <x, P x> / 2 + <u, x> over a product of simplices. Lower is better.

Values are per image, and summed in float64 for every dtype of x: a float32 sum over millions of pixels
loses the digits in which two solvers differ.

A unary energy of +inf forbids a label. It stays +inf in every gradient, so that every oracle returns 0
for the label. ``linear`` and ``descend`` avoid the product of 0 and infinity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from fwcrf.pairwise import Pairwise, inner
from fwcrf.spectrum import Top, eigenvector, largest_eigenvalue
from fwcrf.torch_ops.layout import unary_from_scores
from fwcrf.torch_ops.magnitudes import ENERGY, bounded, is_large
from fwcrf.torch_ops.native import (
    FLOATS,
    as_int64,
    has_values,
    kept_property,
    warn_caller,
    with_memory_errors,
)
from fwcrf.torch_ops.printed import in_one_line
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
    """u = -logits, and True if every entry is known to be finite and within the limits."""
    unary, extent = unary_from_scores(logits, labels_last=labels_last)
    if extent is not None:
        if extent.ordinary:
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


class _FirstOrder(torch.autograd.Function):
    """The identity, for a value whose derivative is exact and whose second derivative is not."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the gradient of L_f, the largest eigenvalue of P, was asked for with create_graph=True; "
                "expected first derivatives only. 'mf', 'efw' and 'l2fw' with a schedule of step sizes do "
                "not use L_f, and have derivatives of any order."
            )
        return g


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

    A unary energy of +inf forbids a label; a row in which every label is forbidden is an error. A row with
    numbers near the end of the float range, such as a mask of ``torch.finfo(dtype).max``, is stored relative
    to its lowest energy, and forbids the labels far above it: see ``fwcrf.magnitudes``.

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

    __repr__ = in_one_line

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
        if has_values(u):
            low, high = (float(v) for v in u.detach().aminmax())
            if low >= -ENERGY and high <= ENERGY:
                return
            self._check_infinite(u)
            if not bool(is_large(u.detach()).any()):
                return
        object.__setattr__(self, "unary", bounded(u))

    @staticmethod
    def _check_infinite(u: Tensor) -> None:
        if torch.isnan(u).any() or (u == -torch.inf).any():
            raise ValueError(
                "unary has NaN or -inf entries; expected finite energies, or +inf where a label is "
                "forbidden. To force a label, forbid all other labels."
            )
        if (u == torch.inf).all(-1).any():
            raise ValueError("unary is +inf for every label of some node; leave at least one label allowed.")

    @staticmethod
    @with_memory_errors
    def of_logits(pairwise: Pairwise, logits: Tensor, *, labels_last: bool = True) -> Energy:
        """The energy with u = -logits: see ``unary_from_logits``."""
        unary, finite = _unary(logits, labels_last)
        return Energy(pairwise, unary, checked=finite)

    @with_memory_errors
    def value(self, x: Tensor) -> Tensor:
        """E(x) per image, ``(*batch,)``."""
        return 0.5 * inner(x, self.pairwise(x)) + linear(self.unary, x)

    def value_from_grad(self, x: Tensor, grad: Tensor) -> Tensor:
        """E(x) = <grad + u, x> / 2, given the gradient at x."""
        return 0.5 * (linear(grad, x) + linear(self.unary, x))

    @with_memory_errors
    def grad(self, x: Tensor) -> Tensor:
        """P x + u."""
        return self.pairwise.plus(x, self.unary)

    @with_memory_errors
    def hessian(self, d: Tensor) -> Tensor:
        """P d."""
        return self.pairwise(d)

    @with_memory_errors
    def curvature(self, d: Tensor) -> Tensor:
        """<d, P d> per image: E(x + a d) = E(x) + a <grad, d> + a^2 / 2 curvature."""
        return inner(d, self.hessian(d))

    @property
    @with_memory_errors
    def smoothness(self) -> Tensor:
        """L_f, ``(*batch,)``: the largest eigenvalue of P on directions within the simplices, at least 0.

        Such directions sum to 0 in every row. All other directions may have much larger eigenvalues: on the
        simplices, Potts with a Gaussian kernel is almost concave. Computed once, by Lanczos iteration.

        With gradients, its derivative is the derivative of the eigenvalue, <v, dP v> with v the eigenvector.
        """
        top = self._top
        # The bound on the error moves at random with P. A value that has converged is much closer than that.
        value = torch.where(
            top.converged, top.value + self._tolerance * top.value.abs(), top.value + top.error
        )
        if torch.is_grad_enabled() and self._learned:
            v = self._top_vector
            quotient = inner(v, self._tangent(v))
            value = value + _FirstOrder.apply(quotient - quotient.detach())
        return value.clamp(min=0)

    @kept_property
    def _learned(self) -> bool:
        """True if P depends on a tensor that requires gradients."""
        # Hooks of its own: a checkpoint counts the tensors that each of its runs saves.
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)
        with torch.enable_grad(), hooks:
            return self.pairwise(torch.zeros_like(self.unary)).requires_grad

    @kept_property
    def _top(self) -> Top:
        return largest_eigenvalue(self._tangent, self.unary.detach(), tol=self._tolerance)

    @property
    def _tolerance(self) -> float:
        return 1e-8 if self.unary.dtype == torch.float64 else 1e-5

    @kept_property
    def _top_vector(self) -> Tensor:
        top = self._top
        if not bool(top.converged.all()):
            share = float((top.error / (top.value + top.error).abs()).max())
            warn_caller(
                f"the largest eigenvalue of P (L_f) is known to {share:.1g} of its value only, and so is its "
                f"gradient, after {top.coefficients.shape[-1]} steps of Lanczos iteration; expected "
                "convergence. A solver that does not use it ('mf', 'efw', 'l2fw'), or "
                "Adaptive(smoothness=...), has exact gradients."
            )
        return eigenvector(self._tangent, self.unary.detach(), top.coefficients)

    def _tangent(self, x: Tensor) -> Tensor:
        """P on directions within the simplices."""
        y = self.pairwise(x - x.mean(-1, keepdim=True))
        return y - y.mean(-1, keepdim=True)

    @property
    def below(self) -> Energy:
        """E without terms of higher order: a quadratic energy that is above E on no labelling."""
        return self

    @with_memory_errors
    def start(self) -> Tensor:
        """softmax(-unary), a new tensor: the point from which solvers start."""
        return softmax(self.unary, -1.0)

    @with_memory_errors
    def of_labels(self, labels: Tensor) -> Tensor:
        """E of a labelling ``(*batch, n)`` of integers, ``(*batch,)``."""
        num_labels = self.unary.shape[-1]
        if labels.dtype.is_floating_point or labels.dtype == torch.bool:
            raise TypeError(f"labels has dtype {labels.dtype}; expected integers.")
        labels = as_int64(labels)
        if labels.shape != self.unary.shape[:-1]:
            raise ValueError(
                f"labels has shape {tuple(labels.shape)}; expected {tuple(self.unary.shape[:-1])}: "
                "one label per node."
            )
        if not torch.compiler.is_compiling() and (labels.min() < 0 or labels.max() >= num_labels):
            raise ValueError(
                f"labels run from {labels.min()} to {labels.max()}; expected 0 to {num_labels - 1}."
            )
        x = torch.nn.functional.one_hot(labels, num_labels).to(self.unary.dtype)
        return self.value(x)
