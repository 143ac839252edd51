"""The CRF energy as a loss, the regularized loss of weakly supervised segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from fwcrf import pairwise
from fwcrf.compatibility import Compatibility
from fwcrf.inputs.arrays import check_same_grid, scores_flat
from fwcrf.kernels import Bilateral
from fwcrf.kernels.kernel import Kernel
from fwcrf.torch_ops.layout import transposed, unary_from_scores
from fwcrf.torch_ops.native import full_precision


def energy(
    image: Tensor,
    probabilities: Tensor,
    kernels: Sequence[Kernel] | None = None,
    compatibility: float | Sequence[float] | Tensor | Compatibility = 1.0,
    *,
    logits: Tensor | None = None,
    self_edges: bool = False,
    spatial_dims: int = 2,
    reduction: Literal["mean", "sum", "none"] = "mean",
) -> Tensor:
    """(<x, P x> / 2 + <u, x>) / n of each image, averaged over the batch.

    ``probabilities`` x are ``(batch, L, *grid)`` or ``(L, *grid)``, such as softmax(scores, 1) of a network.
    The value measures the disagreement of neighbours per pixel: with Potts and the symmetric normalization it
    lies between 0 and half the sum of the kernels' weights, up to rounding. ``logits`` (u = -logits) add the
    unary part. They default to none: in weakly supervised training, a cross-entropy over the labelled pixels
    replaces it.

    The gradient in x is (P x + u) / n, exactly. The image gets a gradient if it requires one. ``kernels``
    default to a bilateral one of 80 pixels and 13 levels. ``reduction="none"`` returns a value per image.

    >>> import torch
    >>> image = torch.zeros(3, 4, 4)
    >>> same, mixed = torch.zeros(2, 4, 4), torch.full((2, 4, 4), 0.5)
    >>> same[0] = 1
    >>> bool(energy(image, same) == 0), bool(energy(image, mixed) > 0.1)
    (True, True)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction={reduction!r} is not known; expected 'mean', 'sum' or 'none'.")
    check_same_grid(image, probabilities, spatial_dims, "probabilities")
    with full_precision(probabilities):
        num_labels = probabilities.shape[-spatial_dims - 1]
        x = transposed(scores_flat(probabilities, num_labels, spatial_dims, "probabilities"))
        P = pairwise.of_image(
            [Bilateral()] if kernels is None else kernels, image, num_labels,
            compat=compatibility, self_edges=self_edges, spatial_dims=spatial_dims, dtype=x.dtype,
        )  # fmt: skip
        value = 0.5 * pairwise.inner(x, P(x))
        if logits is not None:
            unary, _ = unary_from_scores(scores_flat(logits, num_labels, spatial_dims, "logits"))
            value = value + pairwise.inner(unary, x)
        value = (value / x.shape[-2]).to(x.dtype)
        return value if reduction == "none" else value.mean() if reduction == "mean" else value.sum()
