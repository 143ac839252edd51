"""The energy E(x) = <x, P x> / 2 + <u, x> over a product of simplices. Lower is better.

Values are per image and summed in float64 whatever the dtype of x: a sum over millions of pixels in
float32 would be off in the digits that tell two solvers apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fwcrf.pairwise import Pairwise


def inner(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> per image, ``(*batch,)``, in float64."""
    return (a * b).sum((-2, -1), dtype=torch.float64)


def unary_from_logits(logits: Tensor) -> Tensor:
    """u = -logits: the one place where scores become energies."""
    return -logits


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

    def __post_init__(self) -> None:
        u = self.unary
        if not isinstance(u, Tensor) or u.dtype not in (torch.float32, torch.float64):
            kind = u.dtype if isinstance(u, Tensor) else type(u).__name__
            raise TypeError(f"unary is {kind}; expected a float32 or float64 tensor.")
        if u.dim() < 2 or u.numel() == 0:
            raise ValueError(
                f"unary has shape {tuple(u.shape)}; expected (*batch, n, labels), none of them 0."
            )
        if torch.compiler.is_compiling() or torch.isfinite(u.sum()):
            return
        if torch.isnan(u).any() or (u == -torch.inf).any():
            raise ValueError(
                "unary has NaN or -inf entries; expected finite energies, or +inf where a label is "
                "forbidden. A label is forced by forbidding the others."
            )
        if (u == torch.inf).all(-1).any():
            raise ValueError("unary is +inf for every label of some node; leave at least one label allowed.")

    def value(self, x: Tensor) -> Tensor:
        """E(x) per image, ``(*batch,)``."""
        return 0.5 * inner(x, self.pairwise(x)) + self._linear(x)

    def grad(self, x: Tensor) -> Tensor:
        """P x + u."""
        return self.pairwise(x) + self.unary

    def curvature(self, d: Tensor) -> Tensor:
        """<d, P d> per image: E(x + a d) = E(x) + a <grad, d> + a^2 / 2 curvature."""
        return inner(d, self.pairwise(d))

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

    def _linear(self, x: Tensor) -> Tensor:
        # 0 times +inf is 0 here: a forbidden label that is not taken costs nothing.
        return torch.where(x == 0, 0.0, x * self.unary).sum((-2, -1), dtype=torch.float64)
