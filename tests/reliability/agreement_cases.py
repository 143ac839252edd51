"""Random small models for tests of agreement, their reference in plain matrices, and the comparison itself.

Two paths agree if their results differ by no more than a stated tolerance. A result may jump where a label, a
support or a lattice cell changes. A case so close to a jump that rounding decides is not a finding: the
reference is computed again from inputs changed by the size of rounding, and if it moves by as much as the two
paths differ, the case is counted as a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from api_targets import NORMALIZATIONS
from choices import Choices, flag, pick, positive
from torch import Tensor

from fwcrf import pairwise, solvers, stepsizes
from fwcrf.energy import Energy
from fwcrf.kernels import Bilateral, Spatial
from fwcrf.pairwise import Pairwise

EPS = {torch.float32: 2.0**-23, torch.float64: 2.0**-52}
# Rounding errors of one step, in units of the dtype's epsilon times the largest number that is added up: sums
# over a hundred pixels and two hundred labels, in another order.
ROUNDINGS = 64
# References from changed inputs, to tell a tie from a disagreement.
TRIALS = 8


class Tie(Exception):
    """The case is so close to a jump that rounding decides."""


class NotComparable(Exception):
    """The case has no second path, or the comparison does not apply to it."""


@dataclass(frozen=True)
class Explicit(Pairwise):
    """P x as sums of products with matrices, K x M: no engine, no filter, any dtype."""

    kernels: Sequence[Tensor]  # (*batch, n, n)
    matrices: Sequence[Tensor]  # (L, L)

    @staticmethod
    def of(P: Any, dtype: torch.dtype) -> Explicit:
        terms = P.terms if isinstance(P, pairwise.Sum) else [P]
        return Explicit(
            [term.operator.to_dense().to(dtype) for term in terms],
            [term.compat.matrix(term.num_labels).to(dtype) for term in terms],
        )

    def __call__(self, x: Tensor) -> Tensor:
        total = self.kernels[0] @ x @ self.matrices[0]
        for K, M in zip(self.kernels[1:], self.matrices[1:], strict=True):
            total = total + K @ x @ M
        return total

    def to_dense(self) -> Tensor:
        parts = [
            torch.einsum("...ij,st->...isjt", K, M) for K, M in zip(self.kernels, self.matrices, strict=True)
        ]
        return sum(parts[1:], parts[0]).flatten(-2).flatten(-3, -2)

    def largest(self) -> float:
        """An upper bound on the sum of the sizes of the entries of a row of P."""
        pairs = zip(self.kernels, self.matrices, strict=True)
        return sum(float(K.abs().sum(-1).max() * M.abs().sum(-1).max()) for K, M in pairs)


def random(c: Choices) -> np.random.Generator:
    return np.random.default_rng(c.integer(0, 2**32 - 1))


def grid_of(c: Choices) -> tuple[int, int]:
    return c.integer(3, 12), c.integer(3, 10)


def labels_of(c: Choices, most: int = 200) -> int:
    """Few labels most often, and every number up to ``most``."""
    return c.integer(1, pick(c, (3, 8, 20, 70, most)) if most > 70 else most)


def image_of(c: Choices, shape: Sequence[int], channels: int) -> np.ndarray:
    """Channels first, 0 to 255: noise, a few colours with noise, or a slope."""
    r, kind = random(c), c.integer(0, 2)
    full = (*shape[:-2], channels, *shape[-2:])
    if kind == 0:
        return r.uniform(0, 255, full)
    if kind == 1:
        colours = r.uniform(0, 255, (3, channels))
        which = r.integers(0, 3, (*shape[:-2], shape[-2], 1)).repeat(shape[-1], -1)
        return np.moveaxis(colours[which], -1, -3) + r.normal(0, 4, full)
    slope = np.linspace(20, 200, shape[-1]) + np.linspace(0, 50, shape[-2])[:, None]
    return slope + r.normal(0, 3, full)


def kernels_of(
    c: Choices,
    methods: Sequence[str] = ("lattice", "separable", "exact"),
    normalizations: Sequence[str] = NORMALIZATIONS,
    labels: int = 0,
) -> list[Any]:
    """One to three kernels; with ``labels``, now and then a weight per label."""
    found: list[Any] = []
    for _ in range(c.integer(1, 3)):
        normalization: Any = pick(c, normalizations)
        weight: Any = pick(c, (1.0, 0.3, -0.5, 2.0))
        if normalization == "none":  # row sums are as large as the number of pixels in sight
            weight = 0.1 * weight
        if labels and not c.integer(0, 3):
            weight = weight * torch.from_numpy(random(c).uniform(0.2, 1.5, labels))
        if "separable" in methods and flag(c):
            found.append(Spatial(positive(c, 0.4, 4.0), weight, "separable", normalization))
            continue
        method: Any = pick(c, [m for m in methods if m != "separable"] or ["exact"])
        if flag(c):
            found.append(Spatial(positive(c, 0.7, 4.0), weight, method, normalization))
        else:
            found.append(
                Bilateral(positive(c, 1.0, 8.0), positive(c, 8.0, 60.0), weight, method, normalization)
            )
    return found


def compat_of(c: Choices, labels: int) -> Any:
    """Potts, or now and then a diagonal or a matrix."""
    kind = c.integer(0, 4)
    if kind < 3:
        return pick(c, (1.0, 0.7, -0.4))
    shape = (labels,) if kind == 3 else (labels, labels)
    # The rows of a matrix add up to a number that does not grow with the number of labels.
    return torch.from_numpy(random(c).normal(size=shape) / labels ** (len(shape) - 1))


def solver_of(
    c: Choices, names: Sequence[str] = ("mf", "efw", "l2fw", "fw", "pgd", "pgm", "emd", "admm")
) -> Any:
    name = pick(c, names)
    step: Any = pick(c, (1.0, 1.0, 0.5, [1.0, 0.7, 0.3], stepsizes.Harmonic()))
    if name == "admm":
        return solvers.get(name, rho=pick(c, (1.0, 3.0)))
    settings: dict[str, Any] = {} if flag(c) else {"step": step}
    if name in ("efw", "l2fw") and flag(c):
        settings["weight"] = pick(c, (0.5, 1.0, 2.0))
    return solvers.get(name, **settings)


def unary_of(c: Choices, shape: Sequence[int], *, forbid: bool = True) -> np.ndarray:
    """Energies, now and then with forbidden labels, of which a pixel keeps at least one."""
    r = random(c)
    unary = r.normal(0, pick(c, (0.3, 1.0, 4.0)), tuple(shape))
    if forbid and shape[-1] > 1 and not c.integer(0, 3):
        unary[r.uniform(size=unary.shape) < 0.2] = np.inf
        kept = r.integers(0, shape[-1], unary.shape[:-1])
        np.put_along_axis(unary, kept[..., None], 0.5, -1)
    return unary


def size_of(unary: Tensor) -> float:
    """The largest finite energy."""
    return float(unary.detach().masked_fill(torch.isinf(unary.detach()), 0.0).abs().max())


def with_noise(values: Tensor, size: float, seed: int) -> Tensor:
    """Values changed by up to ``size``, the same ones for the same seed."""
    if not size:
        return values
    noise = torch.rand(values.shape, dtype=values.dtype, generator=torch.Generator().manual_seed(seed))
    return values + size * (2 * noise - 1)


def apart(one: Sequence[Tensor], other: Sequence[Tensor], scales: Sequence[float]) -> float:
    """The largest difference of two lists of tensors, each divided by its scale."""
    worst = 0.0
    for a, b, scale in zip(one, other, scales, strict=True):
        assert a.shape == b.shape, f"shapes {tuple(a.shape)} and {tuple(b.shape)}"
        difference = (a.detach().double() - b.detach().double()).abs() / scale
        assert not torch.isnan(difference).any(), "a result that is not a number"
        worst = max(worst, float(difference.max()) if difference.numel() else 0.0)
    return worst


def agree(
    found: Sequence[Tensor],
    reference: Callable[[float, int], Sequence[Tensor]],
    tolerance: float,
    rounding: float,
    what: str = "",
) -> None:
    """Compare results with a reference, ``reference(size of the noise in its inputs, seed)``.

    Each tensor is measured relative to its largest entry if that is more than 1.
    """
    expected = reference(0.0, 0)
    scales = [max(1.0, float(t.detach().abs().max()) if t.numel() else 0.0) for t in expected]
    difference = apart(found, expected, scales)
    if difference <= tolerance:
        return
    moved = max(apart(reference(rounding, seed), expected, scales) for seed in range(TRIALS))
    if difference <= tolerance + 4 * moved:
        raise Tie
    raise AssertionError(
        f"{what}: {difference:.3g} apart, tolerance {tolerance:.3g}; changes of {rounding:.2g} in the input "
        f"move the reference by {moved:.3g}"
    )


def gradients_of(result: Tensor, inputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """The derivatives of <result, fixed noise> in the inputs, 0 for inputs without influence."""
    direction = torch.randn(
        result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    ).to(result)
    if not result.requires_grad:
        return [torch.zeros_like(t) for t in inputs]
    found = torch.autograd.grad(result, inputs, direction, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)]


@dataclass
class Model:
    """A model of an image, with which a case of most comparisons begins."""

    image: Tensor  # (*batch, channels, height, width)
    kernels: list[Any]
    compat: Any
    self_edges: bool
    unary: Tensor  # (*batch, n, L)

    @staticmethod
    def of(
        c: Choices, *, dtype: torch.dtype, most: int = 200, batch: Sequence[int] | None = None, **kernels: Any
    ) -> Model:
        grid, labels = grid_of(c), labels_of(c, most)
        shape = tuple(pick(c, ((), (), (), (2,), (3,))) if batch is None else batch)
        image = image_of(c, (*shape, *grid), c.integer(1, 3))
        unary = unary_of(c, (*shape, grid[0] * grid[1], labels))
        return Model(
            torch.from_numpy(image).to(dtype), kernels_of(c, labels=labels, **kernels), compat_of(c, labels),
            flag(c), torch.from_numpy(unary).to(dtype),
        )  # fmt: skip

    @property
    def labels(self) -> int:
        return self.unary.shape[-1]

    def pairwise(self, weights: Any = None) -> Pairwise:
        return pairwise.of_image(
            self.kernels,
            self.image,
            self.labels,
            compat=self.compat,
            weights=weights,
            self_edges=self.self_edges,
        )

    def energy(self) -> Energy:
        return Energy(self.pairwise(), self.unary)
