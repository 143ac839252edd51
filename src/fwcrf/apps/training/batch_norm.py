"""Batch norm with statistics of the batches of all processes, or with fixed statistics."""

from __future__ import annotations

import torch
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm with the mean and variance of the union of all processes' batches.

    torch.nn.SyncBatchNorm does the same, but not on the CPU.
    """

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        axes = (0, 2, 3)
        count = torch.tensor(float(input.numel() // input.shape[1]), device=input.device)
        distributed.all_reduce(count)
        mean = all_reduce(input.sum(axes)) / count
        centred = input - mean.view(1, -1, 1, 1)
        variance = all_reduce(centred.square().sum(axes)) / count
        if self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            momentum = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
            self.running_mean.lerp_(mean.detach(), momentum)
            self.running_var.lerp_(variance.detach() * (count / (count - 1)), momentum)
        normal = centred * (variance + self.eps).rsqrt().view(1, -1, 1, 1)
        if self.weight is None:
            return normal
        return normal * self.weight.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


def share_batch_norm(model: nn.Module) -> None:
    """Replace every batch norm of a model by ``SharedBatchNorm``, in place, with the same parameters."""
    for module in model.modules():
        if type(module) is nn.BatchNorm2d:
            module.__class__ = SharedBatchNorm


def training_mode(model: nn.Module, frozen_statistics: bool) -> None:
    """Call ``model.train()``, except for frozen modules and, with ``frozen_statistics``, batch norms."""
    model.train()
    for module in model.modules():
        parameters = list(module.parameters())
        frozen = bool(parameters) and not any(p.requires_grad for p in parameters)
        if frozen or (frozen_statistics and isinstance(module, nn.BatchNorm2d)):
            module.eval()
