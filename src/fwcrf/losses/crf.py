"""The CRF energy as a loss, the regularized loss of weakly supervised segmentation.

``energy`` is half the dense CRF loss of Tang et al. (ECCV 2018), sum_s <x_s, K (1 - x_s)> with x_s the
probabilities of label s: these sum to 1 over the labels, so that 1 - x_s is the sum of all other x_t.
``gated_energy`` is the loss of Obukhov et al. (2019), with gates and sums over a window.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fwcrf import pairwise
from fwcrf.compatibility import Compatibility
from fwcrf.inputs.arrays import check_same_grid, scores_flat
from fwcrf.inputs.numbers import whole
from fwcrf.kernels import Bilateral
from fwcrf.kernels.kernel import Kernel
from fwcrf.losses.arguments import Reduction, check_reduction, reduced
from fwcrf.losses.window import window_sums
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
    reduction: Reduction = "mean",
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
    check_reduction(reduction)
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
        return reduced((value / x.shape[-2]).to(x.dtype), reduction)


def gated_energy(
    image: Tensor,
    probabilities: Tensor,
    kernels: Sequence[Kernel] | None = None,
    compatibility: float | Sequence[float] | Tensor | Compatibility = 1.0,
    *,
    target: Tensor | None = None,
    source: Tensor | None = None,
    radius: int | None = 5,
    spatial_dims: int = 2,
    reduction: Reduction = "mean",
) -> Tensor:
    """sum_ij t_i s_j <x_i, P_ij x_j> / 2 sum_i t_i of each image, averaged over the batch.

    The gates t (``target``) and s (``source``), ``(batch, *grid)`` or ``(*grid)`` with values from 0 to 1 or
    true and false, say which pixels the loss changes towards their neighbours, and which pixels count as
    neighbours. They default to 1. Pixels of padding get 0 in both. With the scribbles as sources and all
    other pixels as targets, labels spread from the scribbles only. The mean is over the targets; without any,
    the value is 0.

    The neighbours of a pixel are the pixels at most ``radius`` away along each axis, summed exactly, and with
    ``radius=None`` all pixels of the image, as in ``energy``. A window keeps the loss to borders, and leaves
    everything farther away to the network. A normalization of the kernels is over all pixels of the window,
    whatever the gates. ``kernels`` default to a bilateral one, of 6 pixels and 13 levels for a window, of 80
    pixels for the image.

    >>> import torch
    >>> image, x = torch.zeros(3, 4, 4), torch.zeros(2, 4, 4)
    >>> x[0, :2] = x[1, 2:] = 1
    >>> top = torch.arange(4)[:, None].expand(4, 4) < 2
    >>> bool(gated_energy(image, x) > 0.1), float(gated_energy(image, x, source=top, target=top))
    (True, 0.0)
    """
    check_reduction(reduction)
    check_same_grid(image, probabilities, spatial_dims, "probabilities")
    if kernels is None:
        kernels = [Bilateral() if radius is None else Bilateral(xy=6.0)]
    with full_precision(probabilities):
        num_labels = probabilities.shape[-spatial_dims - 1]
        x = transposed(scores_flat(probabilities, num_labels, spatial_dims, "probabilities"))
        t = _gate(target, "target", probabilities, x, spatial_dims)
        s = _gate(source, "source", probabilities, x, spatial_dims)
        if radius is None:
            P = pairwise.of_image(
                kernels, image, num_labels, compat=compatibility, spatial_dims=spatial_dims, dtype=x.dtype
            )
            value = pairwise.inner(t * x, P(s * x))
        else:
            whole(radius, "radius", 1)
            value = window_sums(
                image, x, kernels, compatibility, t.squeeze(-1), s.squeeze(-1),
                radius=int(radius), spatial_dims=spatial_dims,
            )  # fmt: skip
        count = t.sum((-2, -1), dtype=value.dtype)
        return reduced((0.5 * value / count.where(count > 0, 1.0)).to(x.dtype), reduction)


def _gate(gate: Tensor | None, name: str, probabilities: Tensor, x: Tensor, spatial_dims: int) -> Tensor:
    """A gate for x ``(*batch, n, L)``, as ``(*batch, n, 1)``."""
    if gate is None:
        return x.new_ones(*x.shape[:-1], 1)
    grid = probabilities.shape[-spatial_dims:]
    shapes = {tuple(grid), (*x.shape[:-2], *grid)}
    if not isinstance(gate, Tensor) or tuple(gate.shape) not in shapes:
        found = tuple(gate.shape) if isinstance(gate, Tensor) else type(gate).__name__
        raise ValueError(
            f"{name} is of {found}; expected a tensor of {' or '.join(map(str, sorted(shapes)))}, one number "
            "per pixel."
        )
    return gate.to(x).flatten(-spatial_dims).expand(x.shape[:-1]).unsqueeze(-1)
