"""Small layers and their inputs, for tests of the layer and of its gradients."""

from __future__ import annotations

import torch
from helpers import normal, uniform
from torch import Tensor

from fwcrf import DenseCRF
from fwcrf.kernels import Bilateral, Spatial

GRID, L = (4, 5), 3


def kernels(method: str = "lattice", weight: float = 1.5) -> list:
    """Bandwidths that fit a small image with values from 0 to 1.

    Not round ones: a pixel may then lie on the border of two lattice cells, where the lattice has a jump.
    """
    return [Spatial(1.21, weight=0.8), Bilateral(2.93, 0.37, weight=weight, method=method)]


def image(*batch: int, grid=GRID, channels: int = 3, dtype=torch.float64, seed: int = 0) -> Tensor:
    return uniform(*batch, channels, *grid, dtype=dtype, seed=seed)


def logits(*batch: int, grid=GRID, labels: int = L, dtype=torch.float64, seed: int = 1) -> Tensor:
    return normal(*batch, labels, *grid, dtype=dtype, seed=seed)


def crf(num_labels: int = L, *, dtype=torch.float64, method: str = "lattice", **settings) -> DenseCRF:
    settings.setdefault("kernels", kernels(method))
    return DenseCRF(num_labels, **settings).to(dtype)


# --- difference quotients -------------------------------------------------------------------------


def loss(layer: DenseCRF, photo: Tensor, z: Tensor) -> Tensor:
    """A random projection of the probabilities."""
    return (layer(photo, z).exp() * normal(*z.shape, seed=9)).sum()


def slopes(layer: DenseCRF, photo: Tensor, z: Tensor) -> dict[str, Tensor]:
    """Gradients of ``loss`` by name: "image", "logits" and the parameters; 0 if there is none."""
    tensors = _inputs(layer, photo, z)
    value = loss(layer, tensors["image"], tensors["logits"])
    found: tuple = (None,) * len(tensors)
    if value.requires_grad:
        found = torch.autograd.grad(value, list(tensors.values()), allow_unused=True)
    return {
        name: torch.zeros_like(t) if g is None else g
        for (name, t), g in zip(tensors.items(), found, strict=True)
    }


def quotients(
    layer: DenseCRF, photo: Tensor, z: Tensor, *, h: float = 1e-6
) -> dict[str, tuple[Tensor, float, float]]:
    """By name a random direction, and the difference quotients of ``loss`` before and after the point."""
    found = {}
    tensors = _inputs(layer, photo, z)
    with torch.no_grad():
        centre = loss(layer, photo, z)
        for seed, (name, t) in enumerate(tensors.items()):
            direction = normal(t.numel(), seed=100 + seed).view(t.shape)
            kept, values = t.clone(), []
            for side in (-h, h):
                t.copy_(kept + side * direction)
                values.append(loss(layer, tensors["image"], tensors["logits"]))
            t.copy_(kept)
            found[name] = direction, float(centre - values[0]) / h, float(values[1] - centre) / h
    return found


def verdict(slope: Tensor, quotient: tuple[Tensor, float, float]) -> str:
    """The word for a gradient: right if it agrees with the quotients, kink if these differ, else wrong."""
    direction, before, after = quotient
    central, tolerance = 0.5 * (before + after), 1e-4 * (abs(before) + abs(after)) + 1e-7
    if abs(float((slope * direction).sum()) - central) <= tolerance:
        return "right"
    return "kink" if abs(after - before) > 10 * tolerance else "wrong"


def _inputs(layer: DenseCRF, photo: Tensor, z: Tensor) -> dict[str, Tensor]:
    copies = {name: t.detach().clone().requires_grad_() for name, t in (("image", photo), ("logits", z))}
    return {**copies, **dict(layer.named_parameters())}
