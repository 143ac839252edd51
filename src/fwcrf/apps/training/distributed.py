"""Communication between the processes started by ``torchrun``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn


@dataclass(frozen=True)
class Group:
    """The processes that train together: the rank of this process and their number."""

    rank: int = 0
    size: int = 1

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, written to ``value`` in place."""
        if self.size > 1:
            distributed.all_reduce(value)
        return value

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients over all processes, with one all-reduce."""
        if self.size == 1:
            return
        gradients = []
        for p in parameters:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            gradients.append(p.grad)
        together = self.sum(torch.cat([g.flatten() for g in gradients]))
        for g, summed in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
            g.copy_(summed.view_as(g))

    def wait(self) -> None:
        """Wait until all processes call it."""
        if self.size > 1:
            distributed.barrier()


@contextmanager
def joined(device: str = "cpu") -> Iterator[Group]:
    """Yield the group of processes that ``torchrun`` started, or a group of this process alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Group()
        return
    distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
