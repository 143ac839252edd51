"""Verdicts on the paper's claims, from a paired bootstrap over images.

A claim states that a difference, or each of several, is above a bound for images of this kind. Images are
drawn with replacement, the same ones for both sides of a difference. The standard error is the deviation of
the difference over the draws; the interval is the difference plus and minus a quantile of Student's
distribution times this error. Percentiles of the draws would be too narrow: with two images, a tie would
count as a win or as a loss every second time.

A difference between trained models is a mean over training runs, and another run may differ. Its variance
is the sum of two: over the draws of images, and over the runs, divided by their number. The degrees of
freedom are those of Welch and Satterthwaite: with three runs that differ more than the images do, two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import torch
from torch import Tensor

DRAWS = 2000
SEED = 0
LEVEL = 0.95


class Verdict(Enum):
    HOLDS = "As in the paper"
    FAILS = "Not as in the paper"
    UNKNOWN = "Cannot tell"


@dataclass(frozen=True)
class Interval:
    """A difference with its interval, infinite for one image, and the bound that a claim sets to it."""

    value: float
    low: float
    high: float
    images: int
    bound: float = 0.0
    below: bool = False  # the claim sets an upper bound; otherwise a lower one
    name: str = "difference"
    runs: int = 1  # training runs, over which the interval is too if there are several

    @property
    def verdict(self) -> Verdict:
        """Cannot tell if the bound is inside the interval, or if there is no difference on any image."""
        if self.value == self.low == self.high == 0:
            return Verdict.UNKNOWN
        under, over = self.high < self.bound, self.low > self.bound
        if under or over:
            return Verdict.HOLDS if under == self.below else Verdict.FAILS
        return Verdict.UNKNOWN

    def __str__(self) -> str:
        bound = f", to be {'below' if self.below else 'above'} {self.bound:g}" if self.bound else ""
        if math.isinf(self.low) or math.isinf(self.high):
            return f"{self.name} {self.value:.2f}{bound}, no interval from one image"
        runs = f" and {self.runs} training runs" * (self.runs > 1)
        return (
            f"{self.name} {self.value:.2f}{bound}, {100 * LEVEL:g} % interval {self.low:.2f} to "
            f"{self.high:.2f} over {self.images} images{runs}"
        )


Differences = Callable[[Tensor], Tensor]


def above(
    differences: Differences,
    num_images: int,
    bound: float = 0.0,
    name: str | None = None,
    runs: Tensor | None = None,
) -> Interval:
    """The interval of the least of several differences, to be above ``bound``.

    ``differences`` takes the shares ``(draws, images)`` of the images in each draw, rows of sum 1. It returns
    ``(draws,)``, or ``(k, draws)`` for k differences. A draw without a value is nan. ``runs``, ``(k, runs)``,
    has the differences of each training run over all images, if ``differences`` are means over several.
    """
    value, error = _value_and_error(differences, num_images)
    degrees = torch.full_like(value, num_images - 1)
    count = 1 if runs is None else runs.shape[1]
    if runs is not None and count > 1:
        error, degrees = _with_runs(error, degrees, runs)
    low, high = _least(value, error, degrees)
    name = name or ("difference" if len(value) == 1 else "least difference")
    return Interval(float(value.min()), low, high, num_images, bound, name=name, runs=count)


def within(
    differences: Differences, num_images: int, bound: float, name: str = "largest difference"
) -> Interval:
    """The interval of the largest absolute value of several differences, to be below ``bound``."""
    value, error = _value_and_error(differences, num_images)
    # The largest absolute value is minus the least of -d and d.
    degrees = torch.full((2 * len(value),), num_images - 1.0)
    low, high = _least(torch.cat([-value, value]), torch.cat([error, error]), degrees)
    return Interval(
        float(value.abs().max()), max(0.0, -high), max(0.0, -low), num_images, bound, below=True, name=name
    )


def exact(holds: bool, num_images: int) -> Verdict:
    """The verdict on a claim about every image: one exception refutes it, and one image does not show it."""
    if not holds:
        return Verdict.FAILS
    return Verdict.HOLDS if num_images > 1 else Verdict.UNKNOWN


def _value_and_error(differences: Differences, num_images: int) -> tuple[Tensor, Tensor]:
    """Differences ``(k,)`` over all images, and their standard errors, nan for one image."""
    value = torch.atleast_2d(differences(equally(num_images)).double())[:, 0]
    if num_images < 2:
        return value, torch.full_like(value, math.nan)
    drawn = torch.atleast_2d(differences(_shares(num_images)).double())
    count = (~drawn.isnan()).sum(1)
    variance = ((drawn - drawn.nanmean(1, keepdim=True)) ** 2).nansum(1) / (count - 1)
    # The variance over draws of n images is (n - 1) / n times that of the difference.
    return value, (variance * num_images / (num_images - 1)).sqrt()


def _with_runs(error: Tensor, degrees: Tensor, runs: Tensor) -> tuple[Tensor, Tensor]:
    """Standard errors over images and training runs together, and their degrees of freedom."""
    count = runs.shape[1]
    parts = torch.stack([error.square(), runs.double().var(1) / count])
    total = parts.sum(0)
    each = torch.stack([degrees, torch.full_like(degrees, count - 1)])
    # 0 / 0 if nothing differs: any degrees of freedom will do.
    effective = total.square() / (parts.square() / each).sum(0)
    return total.sqrt(), torch.where(effective.isnan(), degrees, effective)


def _least(value: Tensor, error: Tensor, degrees: Tensor) -> tuple[float, float]:
    """The interval of the least of k true differences, with the degrees of freedom of each error.

    It is above ``low`` unless the interval of the least itself fails; it is below ``high`` unless one of k
    intervals fails, so each of these has a k-th of the error rate.
    """
    if (degrees < 1).any():
        return -math.inf, math.inf
    tail = (1 - LEVEL) / 2
    low = value - _quantiles(1 - tail, degrees) * error
    high = value + _quantiles(1 - tail / len(value), degrees) * error
    return float(low.min()), float(high.min())


def _quantiles(p: float, degrees: Tensor) -> Tensor:
    """Quantiles of Student's distribution, of whole degrees of freedom: rounding down widens an interval."""
    return torch.tensor([student(p, int(each + 1e-9)) for each in degrees.tolist()], dtype=torch.float64)


def equally(num_images: int) -> Tensor:
    """The shares of one draw that has every image once."""
    return torch.full((1, num_images), 1 / num_images, dtype=torch.float64)


@lru_cache(maxsize=4)
def _shares(num_images: int) -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.randint(num_images, (DRAWS, num_images), generator=generator)
    shares = torch.zeros(DRAWS, num_images, dtype=torch.float64)
    return shares.scatter_add_(1, drawn, torch.full(drawn.shape, 1 / num_images, dtype=torch.float64))


def student(p: float, df: int) -> float:
    """The quantile of Student's distribution with ``df`` degrees of freedom, for p above 1/2.

    >>> round(student(0.975, 1), 3), round(student(0.975, 10), 3)
    (12.706, 2.228)
    """
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = (low + high) / 2
        low, high = (angle, high) if _between(angle, df) < 2 * p - 1 else (low, angle)
    return math.sqrt(df) * math.tan(low)


def _between(angle: float, df: int) -> float:
    """P(|T| < sqrt(df) tan(angle)), by the finite sum for whole degrees of freedom."""
    sine, cosine = math.sin(angle), math.cos(angle)
    term, total = (cosine if df % 2 else 1.0), 0.0
    for k in range(df % 2, df - 1, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    return 2 / math.pi * (angle + sine * total) if df % 2 else sine * total
