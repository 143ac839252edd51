"""Small pieces of real work, whose answers can be compared to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import fwcrf

LABELS = 4


def scene(seed: int, shape: tuple[int, int] = (24, 32)) -> tuple[np.ndarray, np.ndarray]:
    """An image ``(H, W, 3)`` and probabilities ``(H, W, L)``."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, LABELS, (3, 4)).repeat(shape[0] // 3 + 1, 0).repeat(shape[1] // 4 + 1, 1)
    truth = truth[: shape[0], : shape[1]]
    colours = random.integers(0, 256, (LABELS, 3))
    image = np.clip(colours[truth] + random.normal(0, 10, (*shape, 3)), 0, 255).astype(np.uint8)
    p = np.exp(random.normal(0, 1, (*shape, LABELS)) + np.eye(LABELS)[truth])
    return image, (p / p.sum(-1, keepdims=True)).astype(np.float32)


def refine(seed: int, **options: Any) -> list[np.ndarray]:
    image, p = scene(seed)
    return list(fwcrf.refine(image, p, num_steps=3, return_probabilities=True, **options))


def _tensors(seed: int, shape: tuple[int, int] = (24, 32)) -> tuple[torch.Tensor, torch.Tensor]:
    image, p = scene(seed, shape)
    return torch.from_numpy(image).permute(2, 0, 1).float(), torch.from_numpy(p).log().permute(2, 0, 1)


def solve(seed: int, shape: tuple[int, int] = (24, 32)) -> list[np.ndarray]:
    found = fwcrf.DenseCRF(LABELS, solver="efw", num_steps=3).solve(*_tensors(seed, shape), rounding="bcd")
    return [found.labels.numpy(), found.probabilities.numpy(), found.energy.numpy()]


def backward(seed: int, shape: tuple[int, int] = (24, 32)) -> list[np.ndarray]:
    image, logits = _tensors(seed, shape)
    logits.requires_grad_()
    torch_seed = torch.Generator().manual_seed(seed)
    crf = fwcrf.DenseCRF(LABELS, num_steps=3, learnable=("weights", "compatibility", "lambda"), skip=0.5)
    target = torch.randint(LABELS, logits.shape[1:], generator=torch_seed)
    torch.nn.functional.nll_loss(crf(image, logits)[None], target[None]).backward()
    return [t.grad.numpy() for t in (logits, *crf.parameters()) if t.grad is not None]


WORK = (refine, solve, backward)


def everything(seed: int) -> list[np.ndarray]:
    return [answer for work in WORK for answer in work(seed)]


def large(seed: int = 0) -> list[np.ndarray]:
    """Enough for several threads."""
    shape = (150, 160)
    image, p = scene(seed, shape)
    labels, x = fwcrf.refine(image, p, num_steps=5, return_probabilities=True)
    return [labels, x, *solve(seed, shape), *backward(seed, shape)]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
