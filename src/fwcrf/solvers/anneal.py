"""Annealed Frank-Wolfe: good labels from few applications of P.

Two things are added to Algorithm 1 of the paper. The weight of the regularizer falls from step to step, in
units of the strength s of the pairwise part, so that one plan serves kernels of any weight. And the gradient
is extrapolated along its last change, since the labels of a dense model move for many steps in one
direction: regions shrink and grow by the width of a kernel at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.energy import Energy
from fwcrf.regularizers import Entropy, Regularizer
from fwcrf.rounding import merged
from fwcrf.stepsizes import Geometric
from fwcrf.torch_ops.printed import in_one_line


class Mask(NamedTuple):
    """The labels that are not forbidden, and the lowest unary of each row, to be subtracted from it."""

    allowed: Tensor
    lowest: Tensor

    __repr__ = in_one_line

    def relative(self, v: Tensor) -> Tensor:
        """Unaries or gradients without the offset of their row; 0 at forbidden labels.

        Differences of infinities are NaN, and so are derivatives of 0 times infinity.
        """
        return torch.where(self.allowed, v - self.lowest, 0.0)


class State(NamedTuple):
    """x, the point before it with f's gradient there (0 at forbidden labels), and the strength s."""

    x: Tensor
    last: Tensor | None = None
    last_grad: Tensor | None = None
    strength: Tensor | None = None  # (*batch, 1, 1)
    mask: Mask | None = None  # None if all labels are allowed

    __repr__ = in_one_line


@dataclass(frozen=True)
class AnnealedFrankWolfe:
    """x <- argmin_p <c_k, p> + w_k r(p), with w_k from ``start`` to ``end`` in ``steps`` steps and

        c_k = (2 grad_k - grad_{k-1}) / s + w_k (x_k - x_{k-1}),

    grad_k = P x_k + u. The last change of the gradient, P (x_k - x_{k-1}), is added once more: extrapolation.
    The second term removes a node's own contribution: no pixel moves only because it has moved. At k = 0 the
    gradient before is taken to be -s x_0 + u, and the change is added with a weight of w_0 only:

        c_0 = grad_0 / s + w_0 (P x_0 / s + x_0).

    The strength s = |P x_0| / |x_0|, norms about the mean of each row, is close to the sum of the kernels'
    weights times the penalty for different labels. From step ``steps`` on there is no extrapolation, and
    the weight stays at ``end``: entropic Frank-Wolfe with weight ``end * s``. For 10 steps, pass
    ``steps=10`` instead of continuing a run with ``steps=5``.

    Each step applies P once. With ``merge``, whole labels take over others before the last step if that
    lowers E (``rounding.merged``), which needs no application of its own with Potts.

    Everything is differentiable, s included. ``regularizer`` makes r from a weight:
    ``Entropy``, or ``SquaredL2`` and its like with about twice the weights.

    >>> from fwcrf.kernels import Exact
    >>> from fwcrf.pairwise import dense
    >>> u = torch.tensor([[0.0, 2.0], [0.5, 0.0]])
    >>> E = Energy(dense([Exact(torch.zeros(2, 1))], num_labels=2), u)
    >>> solver = AnnealedFrankWolfe(steps=2)
    >>> state = solver.init(E, torch.softmax(-u, -1))
    >>> for k in range(2):
    ...     state = solver.step(E, state, k)
    >>> state.x.argmax(-1)
    tensor([0, 0])
    """

    steps: int = 5
    start: float = 0.25
    end: float = 0.05
    regularizer: Callable[[float], Regularizer] = Entropy
    merge: bool = False

    def __post_init__(self) -> None:
        _ = self.weights  # raises ValueError for bad settings

    @property
    def weights(self) -> Geometric:
        """w_k, relative to s."""
        return Geometric(self.start, self.end, self.steps)

    def init(self, f: Energy, x0: Tensor) -> State:
        return State(x0, mask=_mask(f.unary))

    def step(self, f: Energy, state: State, k: int) -> State:
        x, weight, mask = state.x, self.weights(k), state.mask
        if self.merge and k == self.steps - 1:
            x, grad = merged(f, x)
        else:
            grad = f.grad(x)
        grad = grad if mask is None else mask.relative(grad)
        if state.strength is None or state.last is None or state.last_grad is None:
            message = grad - (f.unary if mask is None else mask.relative(f.unary))
            s = _strength(message, x, mask)
            c = (grad + weight * message) / s + weight * x
        elif k < self.steps:
            s = state.strength
            c = (2 * grad - state.last_grad) / s + weight * (x - state.last)
        else:
            s = state.strength
            c = grad / s
        if mask is not None:
            c = c.masked_fill(~mask.allowed, torch.inf)
        return State(self.regularizer(weight).argmin(c), x, grad, s, mask)


def _mask(unary: Tensor) -> Mask | None:
    """The mask of forbidden labels; None if all are known to be allowed.

    A label is forbidden by an infinite unary, and by one so far above its row's lowest that its square is
    infinite, as ``torch.finfo(dtype).min`` in the logits makes it: twice that gradient would overflow.
    """
    u = unary.detach()
    limit = torch.finfo(u.dtype).max ** 0.5
    if not torch.compiler.is_compiling() and bool((u.abs() <= limit).all()):
        return None
    lowest = u.amin(-1, keepdim=True)
    return Mask(u - lowest <= limit, lowest)


def _strength(message: Tensor, x: Tensor, mask: Mask | None) -> Tensor:
    """|P x| / |x| per image, ``(*batch, 1, 1)``; 1 if one of the norms is 0."""
    over, under = _about_mean(message, mask), _about_mean(x, mask)
    known = (over > 0) & (under > 0)
    return torch.where(known, torch.where(known, over, 1.0) / torch.where(known, under, 1.0), 1.0).sqrt()


def _about_mean(v: Tensor, mask: Mask | None) -> Tensor:
    """The sum of squares about the mean of each row."""
    if mask is None:
        centred = v - v.mean(-1, keepdim=True)
    else:
        allowed = mask.allowed
        v = torch.where(allowed, v, 0.0)
        centred = torch.where(allowed, v - v.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True), 0.0)
    return centred.square().sum((-2, -1), keepdim=True)
