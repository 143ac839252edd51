"""Kernels of several candidates that share their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fwcrf.apps.files.settings import Settings
from fwcrf.kernels.kernel import Bandwidth, Domain, Kernel, Normalization, Weight
from fwcrf.kernels.operator import Operator
from fwcrf.torch_ops.printed import in_one_line


@dataclass(frozen=True, eq=False)
class Shared(Kernel):
    """A kernel of one image whose operators are kept, by everything but the weight."""

    kernel: Any
    operators: dict[str, Operator]

    __repr__ = in_one_line

    @property
    def weight(self) -> Weight:  # type: ignore[override]
        return self.kernel.weight

    @property
    def method(self) -> str:  # type: ignore[override]
        return self.kernel.method

    @property
    def normalization(self) -> Normalization:  # type: ignore[override]
        return self.kernel.normalization

    def features(self, domain: Domain) -> Tensor:
        return self.kernel.features(domain)

    def num_features(self, axes: int, channels: int) -> int:
        return self.kernel.num_features(axes, channels)

    def bandwidths(self) -> dict[str, Bandwidth]:
        return self.kernel.bandwidths()

    def with_bandwidths(self, fields: Mapping[str, Bandwidth]) -> Shared:
        return Shared(self.kernel.with_bandwidths(fields), self.operators)

    def on(self, domain: Domain) -> Operator:
        key = repr((replace(self.kernel, weight=1.0), domain.grid, domain.origin))
        if key not in self.operators:
            self.operators[key] = self.kernel.on(domain)
        return self.operators[key]


def arguments(candidates: Sequence[Settings]) -> Iterator[dict[str, Any]]:
    """Arguments for ``fwcrf.refine`` of each candidate, for one image: equal kernels are built once."""
    operators: dict[str, Operator] = {}
    for settings in candidates:
        given = settings.arguments()
        yield given | {"kernels": [Shared(kernel, operators) for kernel in given["kernels"]]}


def areas(labels: Tensor, truth: Tensor, void: int) -> list[list[int]]:
    """Numbers of pixels of each label: in both maps, in the truth, and in the labels. Void does not count.

    >>> areas(torch.tensor([0, 1, 1, 0]), torch.tensor([0, 0, 1, 9]), 9)
    [[1, 1], [2, 1], [1, 2]]
    """
    counted = truth != void
    found, true = labels[counted], truth[counted]
    size = int(max(found.max(), true.max())) + 1
    return [torch.bincount(one, minlength=size).tolist() for one in (true[found == true], true, found)]
