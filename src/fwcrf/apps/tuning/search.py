"""Where to look next: at random first, then along one parameter at a time around the best so far."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Mapping, Sequence

Point = dict[str, float]

# By these factors a parameter is moved up and down; the next, smaller one is taken when none helps any more.
_FACTORS = (2.0, 1.4, 1.15)


def search(
    start: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
    *,
    num_trials: int,
    seed: int = 0,
) -> Generator[list[Point], Sequence[float], None]:
    """Yields points to try, is sent their scores (higher is better), and ends after ``num_trials`` points.

    The first is ``start``. Half of the others are drawn uniformly in the logarithm within ``ranges``. The
    rest move one parameter of the best point at a time by a factor, in random order, and stay where it helps.
    The same seed and the same scores give the same points.
    """
    chance = random.Random(seed)
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
    drawn = [{name: _drawn(chance, *ranges[name]) for name in start} for _ in range((num_trials - 1) // 2)]
    yield from try_(drawn)
    for factor in _FACTORS:
        helped = True
        while helped and len(tried) < num_trials:
            helped = False
            for name in chance.sample(list(start), len(start)):
                low, high = ranges[name]
                moved = [min(max(_rounded(best[name] * f), low), high) for f in (factor, 1 / factor)]
                helped |= yield from try_([{**best, name: value} for value in dict.fromkeys(moved)])


def _drawn(chance: random.Random, low: float, high: float) -> float:
    return _rounded(math.exp(chance.uniform(math.log(low), math.log(high))))


def _rounded(value: float) -> float:
    """To three digits, which is enough, and can be read."""
    return float(f"{value:.3g}")
