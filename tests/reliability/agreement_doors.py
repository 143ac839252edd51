"""Agreement of ``refine`` with itself: layouts, tiles, and masks against models without the masked pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from agreement_cases import (
    EPS,
    ROUNDINGS,
    agree,
    compat_of,
    image_of,
    kernels_of,
    labels_of,
    random,
    solver_of,
    unary_of,
    with_noise,
)
from agreement_models import gaussian, matrix
from choices import Choices, flag, pick, positive
from torch import Tensor

import fwcrf
from fwcrf.energy import Energy
from fwcrf.kernels import Spatial


def same_labels(found: Any, expected: Any, x: Tensor, tolerance: float) -> None:
    """Labels agree where the two largest probabilities differ by more than rounding; x has labels last."""
    top = x.topk(min(2, x.shape[-1]), -1).values
    clear = (
        (top[..., 0] - top[..., -1] > 4 * tolerance) if x.shape[-1] > 1 else torch.ones(x.shape[:-1]).bool()
    )
    differ = torch.as_tensor(found) != torch.as_tensor(expected)
    assert not bool((differ & clear).any()), "labels differ where the margin is larger than the tolerance"


def inputs_of(
    c: Choices, grid: tuple[int, int], batch: tuple[int, ...], most: int = 12
) -> tuple[Tensor, Tensor]:
    """An image ``(*batch, channels, *grid)`` and logits ``(*batch, L, *grid)``, L > 1."""
    labels = max(2, labels_of(c, most))
    image = torch.from_numpy(image_of(c, (*batch, *grid), c.integer(1, 3))).clamp(0, 255)
    image = image.to(pick(c, (torch.uint8, torch.float32, torch.float64)))
    n = grid[0] * grid[1]
    logits = -torch.from_numpy(unary_of(c, (*batch, n, labels), forbid=False)).mT.unflatten(-1, grid)
    return image, logits.contiguous().to(pick(c, (torch.float32, torch.float64)))


def rounding_of(logits: Tensor, kernels: list[Any], n: int) -> float:
    """The rounding of a gradient; the sums of a kernel without normalization are at most n."""
    sums = sum(
        float(torch.as_tensor(k.weight).abs().max()) * (n if k.normalization != "symmetric" else 1)
        for k in kernels
    )
    return ROUNDINGS * EPS[logits.dtype] * (1 + float(logits.abs().max()) + sums)


def layouts(c: Choices) -> None:
    """torch tensors against numpy arrays with labels last, first and in between, any order in memory.

    Tolerance: 8 times the rounding of one gradient; scores given as probabilities are logarithms first.
    """
    grid = (c.integer(3, 12), c.integer(3, 10))
    batch = pick(c, ((), (), (2,)))
    image, logits = inputs_of(c, grid, batch)
    kernels = kernels_of(c, normalizations=("symmetric", "none"))
    settings: dict[str, Any] = {
        "kernels": kernels, "solver": solver_of(c), "num_steps": c.integer(1, 3),
        "compatibility": compat_of(c, logits.shape[-3]), "return_probabilities": True,
    }  # fmt: skip
    as_logits = flag(c)
    axis = pick(c, (-1, -1, len(batch), len(batch) + 1))
    masked = random(c).uniform(size=(*batch, *grid)) < 0.2 if flag(c) else None
    kind = pick(c, ("keep", "ignore"))

    def shown(values: Tensor) -> Tensor:
        return values if as_logits else torch.softmax(values, -3)

    def in_torch(noise: float, seed: int) -> list[Tensor]:
        mask = {} if masked is None else {kind: torch.from_numpy(masked)}
        _, x = fwcrf.refine(
            image, shown(with_noise(logits, noise, seed)), from_logits=as_logits, **mask, **settings
        )
        return [x.movedim(-3, -1)]

    def arrange(values: Tensor) -> np.ndarray:
        moved = np.moveaxis(values.numpy(), len(batch), axis)
        order = c.integer(0, 2)
        return (np.ascontiguousarray, np.asfortranarray, np.asarray)[order](moved)

    mask = {} if masked is None else {kind: masked}
    labels, x = fwcrf.refine(
        arrange(image), arrange(shown(logits)), from_logits=as_logits, channel_axis=axis, **mask, **settings
    )
    found = torch.from_numpy(np.moveaxis(x, axis, -1).copy())
    rounding = rounding_of(logits, kernels, grid[0] * grid[1])
    agree([found], in_torch, 8 * rounding, rounding, f"channel_axis={axis}, {settings['solver']}")
    mask = {} if masked is None else {kind: torch.from_numpy(masked)}
    theirs, y = fwcrf.refine(image, shown(logits), from_logits=as_logits, **mask, **settings)
    same_labels(labels, theirs, y.movedim(-3, -1), 8 * rounding)


def tiles(c: Choices) -> None:
    """Tiles against the whole image.

    With windows as large as the image, the tolerance is rounding. With smaller windows and a spatial kernel,
    the overlap is six standard deviations for each step and once more for the normalization: beyond it the
    kernel is exp(-18) = 1.5e-8 of its peak, which adds 1e-6 to the tolerance.
    """
    batch = pick(c, ((), (), (2,)))
    whole = flag(c)
    steps = c.integer(1, 2)
    if whole:
        grid = (c.integer(3, 12), c.integer(3, 10))
        kernels = kernels_of(c, normalizations=("symmetric", "none"))
        overlap = max(grid)
    else:
        grid = (c.integer(3, 6), c.integer(20, 40))
        sigma = positive(c, 0.3, 0.7)
        kernels = [Spatial(sigma, pick(c, (1.0, 0.5)), pick(c, ("separable", "exact")), "symmetric")]
        overlap = int(np.ceil(6 * sigma)) * (steps + 1)
    image, logits = inputs_of(c, grid, batch, most=5)
    solver = solver_of(c, ("mf", "efw", "l2fw", "fw", "pgd"))
    settings: dict[str, Any] = {
        "kernels": kernels, "solver": solver, "num_steps": steps, "from_logits": True,
        "return_probabilities": True, "self_edges": flag(c),
    }  # fmt: skip
    if flag(c):
        cut: dict[str, Any] = {"tile": (c.integer(1, grid[0]), c.integer(2, grid[1]))}
    else:
        cut = {"memory": 10 ** c.integer(4, 7)}

    def at_once(noise: float, seed: int) -> list[Tensor]:
        return [fwcrf.refine(image, with_noise(logits, noise, seed), tile=False, **settings)[1]]

    rounding = rounding_of(logits, kernels, grid[0] * grid[1]) + (0 if whole else 1e-7)
    try:
        labels, x = fwcrf.refine(image, logits, overlap=overlap, **cut, **settings)
    except ValueError as error:
        if "too little" not in str(error):
            raise
        cut = {"memory": 10**9}
        labels, x = fwcrf.refine(image, logits, overlap=overlap, **cut, **settings)
    agree([x], at_once, 10 * rounding, rounding, f"{cut}, overlap={overlap}, {solver}")
    theirs, y = fwcrf.refine(image, logits, tile=False, **settings)
    same_labels(labels, theirs, y.movedim(-3, -1), 10 * rounding)


def masks(c: Choices) -> None:
    """Ignored pixels against a model of the other pixels; kept pixels and scribbles against forbidden labels.

    Tolerance: 16 times the rounding of one gradient.
    """
    grid = (c.integer(3, 9), c.integer(3, 8))
    image, logits = inputs_of(c, grid, (), most=6)
    labels, n = logits.shape[0], grid[0] * grid[1]
    kernels = kernels_of(c, methods=("exact",), normalizations=("symmetric", "none"))
    compat, r, steps = compat_of(c, labels), random(c), c.integer(1, 3)
    solver = solver_of(c, ("mf", "efw", "l2fw", "fw", "pgd"))
    ignore = r.uniform(size=n) < 0.3 if flag(c) else np.zeros(n, bool)
    keep = r.uniform(size=n) < 0.2 if flag(c) else np.zeros(n, bool)
    scribbles = np.where(r.uniform(size=n) < 0.2, r.integers(0, labels, n), -1) if flag(c) else np.full(n, -1)
    ignore[r.integers(n)] = False
    keep &= ~ignore
    scribbles[ignore | keep] = -1
    given = {
        name: torch.from_numpy(values).unflatten(0, grid)
        for name, values in (("ignore", ignore), ("keep", keep), ("scribbles", scribbles))
        if (values.any() if values.dtype == bool else (values >= 0).any())
    }
    _, x = fwcrf.refine(
        image, logits, from_logits=True, kernels=kernels, compatibility=compat, solver=solver,
        num_steps=steps, return_probabilities=True, **given,
    )  # fmt: skip
    flat = logits.double().flatten(1).T
    kept = np.flatnonzero(~ignore)

    def reference(noise: float, seed: int) -> list[Tensor]:
        scores = with_noise(flat, noise, seed)
        certain = torch.from_numpy(np.where(keep, flat.argmax(-1).numpy(), scribbles))
        others = torch.nn.functional.one_hot(certain.clamp(min=0), labels) == 0
        unary = (-scores).masked_fill(others & (certain >= 0)[:, None], torch.inf)[kept]
        P = Reduced.of(kernels, image.double().numpy(), compat, labels, kept)
        part = fwcrf.minimize(
            Energy(P, unary), solver, num_steps=steps, callback=lambda k, y: None
        ).probabilities
        full = torch.softmax(scores, -1)
        full[kept] = part
        return [full]

    rounding = 4 * rounding_of(logits, kernels, n)
    agree([x.flatten(1).T], reference, 4 * rounding, rounding, f"{[*given]}, {solver}")


class Reduced:
    """The model of the pixels that are not ignored."""

    @staticmethod
    def of(kernels: list[Any], image: np.ndarray, compat: Any, labels: int, kept: np.ndarray) -> Any:
        from agreement_cases import Explicit

        found = []
        for kernel in kernels:
            plain = type(kernel)(**{**kernel.__dict__, "normalization": "none"})
            K = gaussian(plain, image, self_edges=True)[np.ix_(kept, kept)]
            if kernel.normalization == "symmetric":
                K = K / np.sqrt(K.sum(-1)[:, None] * K.sum(-1))
            found.append(torch.from_numpy(K - np.diag(np.diag(K))))
        return Explicit(found, [torch.from_numpy(matrix(compat, k.weight, labels)) for k in kernels])
