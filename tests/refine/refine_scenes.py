"""Small images with scores, and the answer by the library's own pieces."""

from __future__ import annotations

import numpy as np
import torch

import fwcrf
from fwcrf.energy import unary_from_logits
from fwcrf.kernels import Bilateral, Spatial

KERNELS = (Spatial(1.3, weight=1.5), Bilateral(5.1, 31.0, weight=3.0))


def photograph(*size: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    """A few smooth patches with noise, ``(*size, channels)`` of uint8."""
    random = np.random.default_rng(seed)
    grid = np.indices(size).reshape(len(size), -1).T / max(size)
    centres = random.random((4, len(size)))
    nearest = ((grid[:, None] - centres) ** 2).sum(-1).argmin(-1)
    colours = random.integers(30, 226, (4, channels))[nearest]
    noisy = colours + random.normal(0, 6, colours.shape)
    return noisy.clip(0, 255).astype(np.uint8).reshape(*size, channels)


def probabilities(*size: int, labels: int = 3, seed: int = 1, dtype=np.float32) -> np.ndarray:
    """``(*size, labels)``, no two of them equal."""
    logits = np.random.default_rng(seed).normal(size=(*size, labels))
    p = np.exp(logits)
    return (p / p.sum(-1, keepdims=True)).astype(dtype)


def composed(image, p, kernels=KERNELS, *, solver="l2fw", num_steps=10, compat=1.0, rounding="nearest"):
    """Labels and probabilities of one image, channels and labels last."""
    grid, labels = p.shape[:-1], p.shape[-1]
    channels_first = torch.from_numpy(np.moveaxis(image, -1, 0).astype(p.dtype))
    P = fwcrf.pairwise.of_image(kernels, channels_first, labels, compat=compat, spatial_dims=len(grid))
    E = fwcrf.Energy(P, unary_from_logits(torch.from_numpy(p).flatten(0, -2).log()))
    with torch.no_grad():
        found = fwcrf.minimize(E, solver, num_steps=num_steps, rounding=rounding)
    return found.labels.view(grid).numpy(), found.probabilities.view(*grid, labels).numpy()
