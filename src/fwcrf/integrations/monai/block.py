"""A network block with the arguments of ``monai.networks.blocks.CRF``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fwcrf.kernels import Bilateral, Kernel, Spatial
from fwcrf.layer import DenseCRF


class CRF(nn.Module):
    """Mean field with a bilateral and a Gaussian kernel, called as ``monai.networks.blocks.CRF``.

    ``block(input_tensor, reference_tensor)`` takes logits ``(batch, labels, *grid)`` and an image
    ``(batch, channels, *grid)`` with 1, 2 or 3 grid axes, and returns probabilities. It has gradients in
    both, and needs no build of MONAI with C++ extensions. Arguments and defaults are MONAI's;
    ``fwcrf.DenseCRF`` has more solvers, an energy and learnable parameters.

    >>> CRF(iterations=2)(torch.randn(1, 3, 6, 7), torch.randn(1, 1, 6, 7)).sum(1).allclose(torch.ones(6, 7))
    True
    """

    compatibility_matrix: Tensor | None

    def __init__(
        self,
        iterations: int = 5,
        bilateral_weight: float = 1.0,
        gaussian_weight: float = 1.0,
        bilateral_spatial_sigma: float = 5.0,
        bilateral_color_sigma: float = 0.5,
        gaussian_spatial_sigma: float = 5.0,
        update_factor: float = 3.0,
        compatibility_matrix: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.iterations = iterations
        matrix = compatibility_matrix
        if matrix is not None and not torch.allclose(matrix, matrix.mT):
            raise ValueError(
                f"compatibility_matrix={matrix.tolist()} is not symmetric; expected a symmetric one, since "
                "an energy has no other: (C + C.T) / 2."
            )
        self.register_buffer("compatibility_matrix", matrix, persistent=False)
        kernels = (
            Bilateral(
                bilateral_spatial_sigma, bilateral_color_sigma, update_factor * bilateral_weight,
                normalization="after",
            ),
            Spatial(gaussian_spatial_sigma, update_factor * gaussian_weight, normalization="after"),
        )  # fmt: skip
        self.kernels: tuple[Kernel, ...] = tuple(one for one in kernels if one.weight)
        self._layers: dict[tuple[int, int], DenseCRF] = {}

    def forward(self, input_tensor: Tensor, reference_tensor: Tensor) -> Tensor:
        logits, image = (_plain(one) for one in (input_tensor, reference_tensor))
        if not self.kernels or not self.iterations:
            return logits.softmax(1)
        # Neither the number of labels nor that of grid axes is an argument of MONAI's block.
        size = logits.shape[1], logits.dim() - 2
        if size not in self._layers:
            matrix = self.compatibility_matrix
            self._layers[size] = DenseCRF(
                size[0],
                self.kernels,
                compatibility=1.0 if matrix is None else -matrix.detach().cpu(),
                solver="mf",
                num_steps=self.iterations,
                spatial_dims=size[1],
                self_edges=True,
            )
        layer = self._layers[size].to(logits.device)
        return layer(image, logits).exp()


def _plain(tensor: Tensor) -> Tensor:
    """The tensor without metadata of MONAI, which results of operators would copy."""
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor  # type: ignore[attr-defined]
