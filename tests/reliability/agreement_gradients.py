"""Agreement of gradients: three ways to differentiate a run, and difference quotients."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from agreement_cases import (
    EPS,
    NotComparable,
    Tie,
    agree,
    gradients_of,
    image_of,
    kernels_of,
    unary_of,
    with_noise,
)
from choices import Choices, flag, pick
from torch import Tensor

import fwcrf
from fwcrf.gradients import Implicit, Unrolled

SOLVERS = ("l2fw", "efw", "mf", "tsallis-fw", "mixed-fw", "pgd", "pgm", "emd", "admm")
WITH_WEIGHT = ("l2fw", "efw", "tsallis-fw")


def layer_of(
    c: Choices, dtype: torch.dtype, name: str, methods: tuple[str, ...], learnable: tuple[str, ...]
) -> Any:
    """A layer without a gradient yet: (settings, image, logits)."""
    labels, grid = c.integer(1, 5), (c.integer(3, 7), c.integer(3, 6))
    batch = pick(c, ((), (), (2,)))
    kernels = kernels_of(c, methods=methods, normalizations=("symmetric", "none"))
    chosen = [part for part in learnable if not c.integer(0, 2)]
    if name not in WITH_WEIGHT:
        chosen = [part for part in chosen if part != "lambda"]
    if name not in ("l2fw", "efw", "mf", "tsallis-fw", "mixed-fw"):
        chosen = [part for part in chosen if part != "steps"]
    image = torch.from_numpy(image_of(c, (*batch, *grid), c.integer(1, 3))).to(dtype)
    logits = -torch.from_numpy(unary_of(c, (*batch, labels, *grid), forbid=False)).to(dtype)
    settings = {
        "num_labels": labels, "kernels": kernels, "solver": name, "num_steps": c.integer(1, 4),
        "learnable": chosen, "skip": 0.25 if flag(c) else 0.0, "compatibility": pick(c, (1.0, 0.5)),
        "self_edges": flag(c), "epsilon": 1e-3,
    }  # fmt: skip
    return settings, image, logits


def ways(c: Choices) -> None:
    """Backpropagation through all steps against the same with each step computed again.

    Tolerance: rounding, relative to the largest entry: 5e5 times the dtype's epsilon (5 % of 1e-6 epsilon
    of the layer would be more), since the logarithm of the layer has a slope of up to labels / epsilon.
    """
    dtype = pick(c, (torch.float32, torch.float64))
    name, seed = pick(c, SOLVERS), c.integer(0, 99)
    learnable = ("weights", "compatibility", "lambda", "steps", "skip")
    settings, image, logits = layer_of(c, dtype, name, ("lattice", "separable", "exact"), learnable)

    def run(gradient: str, noise: float, trial: int) -> list[Tensor]:
        crf = fwcrf.DenseCRF(**settings, gradient=gradient).to(dtype)
        scores = with_noise(logits, noise, trial).requires_grad_()
        y = crf(image, scores)
        return [y, *gradients_of(y, [scores, *crf.parameters()], seed)]

    agree(run("checkpoint", 0, 0), lambda noise, trial: run("unrolled", noise, trial), 2e4 * EPS[dtype],
          256 * EPS[dtype], f"{name}, {settings['learnable']}")  # fmt: skip


def implicit(c: Choices) -> None:
    """The derivative of the fixed point against backpropagation through as many steps as lead to it.

    Tolerance: 1e-6 relative to the largest entry; the run stops at a residual of 1e-11, and a slowly
    converging one (more than 150 steps) is not compared. A support that changes at the fixed point is a tie.
    """
    name, seed = pick(c, ("l2fw", "efw", "mf")), c.integer(0, 99)
    settings, image, logits = layer_of(c, torch.float64, name, ("lattice", "separable", "exact"),
                                       ("weights", "compatibility", "skip"))  # fmt: skip
    settings["compatibility"] = 0.25

    def run(gradient: Any, noise: float, trial: int) -> list[Tensor]:
        crf = fwcrf.DenseCRF(**{**settings, "num_steps": 200}, gradient=gradient).to(torch.float64)
        scores = with_noise(logits, noise, trial).requires_grad_()
        y = crf(image, scores)
        return [y, *gradients_of(y, [scores, *crf.parameters()], seed)]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            found = run(Implicit(tol=1e-11, max_steps=150), 0, 0)
    except UserWarning as warning:
        raise NotComparable(str(warning)) from None
    agree(found, lambda noise, trial: run(Unrolled(), noise, trial), 1e-6, 1e-9, name)


def quotients(c: Choices) -> None:
    """Derivatives along a random direction against difference quotients, in float64.

    Tolerance: 1e-4 of the sum of the sizes of the terms of the derivative: steps of 1e-5 give quotients right
    to about 1e-7, less where the logarithm of the layer is steep. A case whose one-sided quotients differ by
    as much has a kink there, and is not compared.
    """
    name, seed = pick(c, SOLVERS), c.integer(0, 99)
    learnable = ("weights", "compatibility", "lambda", "steps", "skip", "bandwidths")
    settings, image, logits = layer_of(c, torch.float64, name, ("separable", "exact"), learnable)
    settings["kernels"] = [k for k in settings["kernels"] if k.method == "exact"] or settings["kernels"]
    if any(k.method != "exact" for k in settings["kernels"]):
        settings["learnable"] = [part for part in settings["learnable"] if part != "bandwidths"]
    crf = fwcrf.DenseCRF(**settings).to(torch.float64)
    scores = logits.clone().requires_grad_()
    inputs = [scores, *crf.parameters()]
    generator = torch.Generator().manual_seed(seed)
    for parameter in crf.parameters():  # off the ends of an interval, where it is folded
        with torch.no_grad():
            parameter.add_(0.05 * torch.rand(parameter.shape, dtype=torch.float64, generator=generator) - 0.1)
    directions = [torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in inputs]
    y = crf(image, scores)
    weights = torch.randn(y.shape, dtype=torch.float64, generator=generator)
    slopes = gradients_of_weighted(y, weights, inputs)
    parts = [(g * d).sum() for g, d in zip(slopes, directions, strict=True)]
    found, size = float(sum(parts)), float(sum(p.abs() for p in parts)) + 1.0

    def value(h: float) -> float:
        with torch.no_grad():
            for t, d in zip(inputs, directions, strict=True):
                t.add_(d, alpha=h)
            result = float((crf(image, scores) * weights).sum())
            for t, d in zip(inputs, directions, strict=True):
                t.add_(d, alpha=-h)
        return result

    h = 1e-5
    left, middle, right = value(-h), value(0.0), value(h)
    quotient, bend = (right - left) / (2 * h), abs(right + left - 2 * middle) / h
    if abs(quotient - found) <= 1e-4 * size:
        return
    if bend > 1e-5 * size:
        raise Tie
    raise AssertionError(
        f"{name}, {settings['learnable']}: {found:.8g}, quotient {quotient:.8g}, size {size:.3g}"
    )


def gradients_of_weighted(y: Tensor, weights: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(y, inputs, weights, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]
