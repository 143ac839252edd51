"""Calls of pydensecrf, the reference library; ``dcrf`` is None if it is not installed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:
    import pydensecrf.densecrf as dcrf
except ImportError:
    dcrf = None

# Potts weights that keep changes of the log-odds near 1, for float32 accuracy.
_WEIGHT = {"none": 1 / 3000, "symmetric": 1.0}


def filtered(features: Tensor, x: Tensor, normalization: str) -> Tensor:
    """K x by pydensecrf, for x of shape ``(n, channels)`` within -1..1.

    pydensecrf has no filter function, so K x is computed from one mean-field step. A channel becomes a
    problem of two labels with probabilities (1 + x/2)/2 and (1 - x/2)/2: after one step with Potts
    weight w the log-odds have moved by w K x / 2.
    """
    assert dcrf is not None and float(x.abs().max()) <= 1
    columns = np.ascontiguousarray(features.float().numpy().T)
    mode = {"none": dcrf.NO_NORMALIZATION, "symmetric": dcrf.NORMALIZE_SYMMETRIC}[normalization]
    weight = _WEIGHT[normalization]
    out = torch.empty(x.shape, dtype=torch.float64)
    for c, channel in enumerate(x.double().unbind(-1)):
        unary = (-torch.log(torch.stack([1 + channel / 2, 1 - channel / 2]) / 2)).float()
        model = dcrf.DenseCRF(len(channel), 2)
        model.setUnaryEnergy(unary.numpy())
        model.addPairwiseEnergy(columns, compat=weight, kernel=dcrf.DIAG_KERNEL, normalization=mode)
        q = torch.from_numpy(np.array(model.inference(1))).double().log()
        moved = (q[0] - q[1]) + (unary[0].double() - unary[1].double())
        out[:, c] = 2 * moved / weight
    return out.to(x.dtype)


def model(image: np.ndarray, unary: np.ndarray, kernels: int, xy: float, color: float) -> Any:
    """A DenseCRF2D with ``kernels`` bilateral kernels, ready for inference."""
    assert dcrf is not None
    height, width = image.shape[:2]
    crf = dcrf.DenseCRF2D(width, height, unary.shape[0])
    crf.setUnaryEnergy(unary)
    for _ in range(kernels):
        crf.addPairwiseBilateral(sxy=xy, srgb=color, rgbim=image, compat=1)
    return crf


def unary(image: np.ndarray, labels: int) -> np.ndarray:
    """Random unary energies ``(labels, n)``.

    pydensecrf's time does not depend on the values. Ours does, because labels that cannot win are pruned:
    here every label can win, which is our slowest case.
    """
    generator = np.random.default_rng(0)
    n = math.prod(image.shape[:2])
    return generator.uniform(0, 4, (labels, n)).astype(np.float32)
