"""Numbers that change from step to step on a plan made beforehand, such as the weight of a regularizer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometric:
    """From ``start`` at step 0 to ``end`` at step ``steps - 1`` by equal ratios, and ``end`` from there on.

    A plan of one step is ``end`` at once.

    >>> [round(Geometric(0.4, 0.1, steps=3)(k), 3) for k in range(5)]
    [0.4, 0.2, 0.1, 0.1, 0.1]
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name}={getattr(self, name)!r}; expected a positive number.")
        if isinstance(self.steps, bool) or int(self.steps) != self.steps or self.steps < 1:
            raise ValueError(f"steps={self.steps!r}; expected a whole number, 1 or more.")

    def __call__(self, k: int) -> float:
        done = min(k / (self.steps - 1), 1.0) if self.steps > 1 else 1.0
        return self.start ** (1 - done) * self.end**done
