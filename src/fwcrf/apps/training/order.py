"""Which images make up which step.

The order of an epoch is a permutation drawn from the seed and the epoch's number, so that a run can go on
from any step without having counted up to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Key = tuple[int, int]  # epoch and number of an image


@dataclass(frozen=True)
class Order:
    """Batches of ``batch_size`` images, the same for any number of processes.

    What does not fill a batch at the end of an epoch is left for other epochs, which are ordered differently.

    >>> order = Order(num_images=5, batch_size=2, seed=0)
    >>> order.steps_per_epoch, [epoch for epoch, _ in order.batch(2)]
    (2, [1, 1])
    """

    num_images: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size > self.num_images:
            raise ValueError(
                f"batch_size is {self.batch_size}, but there are {self.num_images} images; expected no more."
            )

    @property
    def steps_per_epoch(self) -> int:
        return self.num_images // self.batch_size

    def batch(self, step: int) -> list[Key]:
        """The images of a step, over all processes."""
        epoch, place = divmod(step, self.steps_per_epoch)
        permutation = np.random.default_rng((self.seed, epoch)).permutation(self.num_images)
        chosen = permutation[place * self.batch_size : (place + 1) * self.batch_size]
        return [(epoch, int(index)) for index in chosen]


@dataclass(frozen=True)
class Share:
    """The steps ``first`` to ``last`` of an order, and of each the part of one process: a batch sampler."""

    order: Order
    first: int
    last: int
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.order.batch_size % self.size:
            raise ValueError(
                f"batch_size is {self.order.batch_size}, over all processes, of which there are {self.size}; "
                "expected a multiple of that."
            )

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[list[Key]]:
        each = self.order.batch_size // self.size
        for step in range(self.first, self.last):
            yield self.order.batch(step)[self.rank * each : (self.rank + 1) * each]
