"""Search: random points first, then moves of one parameter at a time from the best point."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Mapping, Sequence

Point = dict[str, float]

# Factors by which a parameter is multiplied and divided; the next factor is used when no move helps.
_FACTORS = (2.0, 1.4, 1.15)


def search(
    start: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    *,
    num_trials: int,
    seed: int = 0,
) -> Generator[list[Point], Sequence[float], None]:
    """Generator that yields points to try and is sent their scores; higher is better.

    The first of ``num_trials`` points is ``start``. Half of the remaining points are log-uniform within
    ``ranges``. The rest multiply one parameter of the best point by a factor, in random order, and keep moves
    that help. The same seed and the same scores give the same points.
    """
    rng = random.Random(seed)
    best, score = dict(start), float("-inf")
    tried: set[tuple[float, ...]] = set()

    def try_(points: list[Point]) -> Generator[list[Point], Sequence[float], bool]:
        nonlocal best, score
        new = [p for p in points if tuple(p.values()) not in tried][: num_trials - len(tried)]
        tried.update(tuple(p.values()) for p in new)
        scores = (yield new) if new else ()
        before = score
        for point, found in zip(new, scores, strict=True):
            if found > score:
                best, score = point, found
        return score > before

    yield from try_([best])
    drawn = [{name: _drawn(rng, *ranges[name]) for name in start} for _ in range((num_trials - 1) // 2)]
    yield from try_(drawn)
    for factor in _FACTORS:
        helped = True
        while helped and len(tried) < num_trials:
            helped = False
            for name in rng.sample(list(start), len(start)):
                low, high = ranges[name]
                moved = [min(max(_rounded(best[name] * f), low), high) for f in (factor, 1 / factor)]
                helped |= yield from try_([{**best, name: value} for value in dict.fromkeys(moved)])


def _drawn(rng: random.Random, low: float, high: float) -> float:
    return _rounded(math.exp(rng.uniform(math.log(low), math.log(high))))


def _rounded(value: float) -> float:
    """Value rounded to three significant digits, for readable settings."""
    return float(f"{value:.3g}")
