"""A network followed by a CRF, as one module from images to log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from fwcrf.apps.models.normalization import IMAGENET, Normalization
from fwcrf.apps.models.resize import bilinear


class CNNCRF(nn.Module):
    """``crf(image, resize(cnn(normalise(image))))``.

    ``image`` is ``(B, 3, H, W)`` in grey levels, 0 to 255, of uint8 or floating point. The network gets the
    normalised image. The CRF gets the original image, because its bandwidths are in grey levels. ``cnn`` is
    any module that returns logits ``(B, L, h, w)``, or a dict with logits as ``"out"``, as in torchvision.
    Logits of another size are resized to the image. ``normalization`` defaults to ``cnn.normalization``, then
    to ImageNet's.

    With ``crf=None`` the model returns the log softmax of the logits.

    >>> from fwcrf import DenseCRF
    >>> model = CNNCRF(nn.Conv2d(3, 2, 3, stride=4, padding=1), DenseCRF(2))
    >>> model(torch.randint(0, 256, (1, 3, 20, 24), dtype=torch.uint8)).shape
    torch.Size([1, 2, 20, 24])
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, cnn: nn.Module, crf: nn.Module | None = None, *, normalization: Normalization | None = None
    ) -> None:
        super().__init__()
        self.cnn = cnn
        self.crf = crf
        own: Normalization = getattr(cnn, "normalization", IMAGENET)
        for name, values in (normalization or own)._asdict().items():
            if len(values) != 3:
                raise ValueError(f"{name}={values!r}; expected three numbers in grey levels, red first.")
            # Not in the state dict: constants of the network, not learned.
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        return self.refine(image, self.logits(image)["out"])

    def refine(self, image: Tensor, logits: Tensor) -> Tensor:
        """Log-probabilities from the network's logits, by the CRF or, without one, by softmax."""
        return logits.log_softmax(1) if self.crf is None else self.crf(image.to(logits.dtype), logits)

    def logits(self, image: Tensor) -> dict[str, Tensor]:
        """Logits at the size of the image: ``"out"``, and in training any auxiliary outputs."""
        if image.dim() != 4 or image.shape[1] != 3:
            raise ValueError(f"image has shape {tuple(image.shape)}; expected (batch, 3, height, width).")
        given = self.cnn((image.to(self.mean.dtype) - self.mean) / self.std)
        size = (image.shape[-2], image.shape[-1])
        named = dict(given) if isinstance(given, Mapping) else {"out": given}
        if "out" not in named or not isinstance(named["out"], Tensor):
            raise TypeError(
                f"{type(self.cnn).__name__} returned {type(given).__name__}; expected logits (batch, labels, "
                "height, width), or a dict with logits as 'out'."
            )
        return {
            name: value if value.shape[-2:] == size else bilinear(value, size)
            for name, value in named.items()
        }
