"""The images of each training step.

The order of an epoch is a permutation drawn from (seed, epoch). A run can therefore resume at any step
without repeating the draws before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

Key = tuple[int, int]  # epoch and index of an image


@dataclass(frozen=True)
class Order:
    """Batches of ``batch_size`` images, independent of the number of processes.

    An incomplete last batch is dropped. Its images differ from epoch to epoch, with the permutation.

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
        """The (epoch, index) pairs of a step's images, for all processes."""
        epoch, place = divmod(step, self.steps_per_epoch)
        permutation = np.random.default_rng((self.seed, epoch)).permutation(self.num_images)
        chosen = permutation[place * self.batch_size : (place + 1) * self.batch_size]
        return [(epoch, int(index)) for index in chosen]


@dataclass(frozen=True)
class Share:
    """Batch sampler of one process: its share of each batch, for the steps ``first`` to ``last`` - 1."""

    order: Order
    first: int
    last: int
    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.order.batch_size % self.size:
            raise ValueError(
                f"batch_size is {self.order.batch_size} in total for {self.size} processes; "
                "expected a multiple of the number of processes."
            )

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[list[Key]]:
        each = self.order.batch_size // self.size
        for step in range(self.first, self.last):
            yield self.order.batch(step)[self.rank * each : (self.rank + 1) * each]
