"""Extreme eigenvalues of a symmetric operator, by Lanczos iteration with three vectors.

Step sizes need the largest eigenvalue of P, convexity needs the smallest. Without reorthogonalisation,
converged eigenvalues reappear as copies. Copies do not change the extremes, and three vectors of memory
suffice for any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.pairwise import inner


class Extremes(NamedTuple):
    """Extreme eigenvalues per image, ``(*batch,)`` each, and bounds on their errors.

    ``lowest`` and ``highest`` approach the ends of the spectrum from inside. Each has an eigenvalue within
    its error.
    """

    lowest: Tensor
    highest: Tensor
    lowest_error: Tensor
    highest_error: Tensor


def extreme_eigenvalues(
    operator: Callable[[Tensor], Tensor],
    like: Tensor,  # (*batch, n, L): shape, dtype and device of the vectors
    *,
    tol: float = 1e-3,
    max_steps: int = 100,
    seed: int = 0,
) -> Extremes:
    """Extreme eigenvalues by Lanczos, until both errors are at most ``tol`` times the largest |eigenvalue|.

    >>> import torch
    >>> d = torch.tensor([[-2.0], [1.0], [5.0]])
    >>> found = extreme_eigenvalues(lambda x: d * x, torch.zeros(3, 1))
    >>> round(float(found.lowest), 4), round(float(found.highest), 4)
    (-2.0, 5.0)
    """
    if like.dim() < 2 or like.numel() == 0:
        raise ValueError(
            f"like has shape {tuple(like.shape)}; expected (*batch, n, channels), none of them 0."
        )
    generator = torch.Generator().manual_seed(seed)
    # All images start alike, and a converged image keeps its values: the result of an image does not
    # depend on the rest of its batch.
    v = torch.randn(like.shape[-2:], generator=generator, dtype=torch.float64).to(like).expand(like.shape)
    v = v / _norm(v).to(v)
    answer, done = None, torch.zeros(like.shape[:-2], dtype=torch.bool, device=like.device)
    previous = torch.zeros_like(v)
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    size = like.shape[-2] * like.shape[-1]
    with torch.no_grad():
        for _ in range(min(max_steps, size)):
            w = operator(v)
            alpha = inner(v, w)
            if betas:
                # If the Krylov space of an image is exhausted (beta = 0), repeat an earlier value.
                alpha = torch.where(betas[-1] > 0, alpha, alphas[0])
            w = w - _expand(alpha, w) * v
            if betas:
                w = w - _expand(betas[-1], w) * previous
            beta = inner(w, w).sqrt()
            alphas.append(alpha)
            scale = torch.stack(alphas).abs().amax(0)
            beta = torch.where(beta > torch.finfo(w.dtype).eps * scale, beta, 0.0)
            found = _ritz(alphas, betas, beta)
            if answer is not None:
                found = Extremes(*(torch.where(done, a, b) for a, b in zip(answer, found, strict=True)))
            answer = found
            largest = torch.maximum(found.lowest.abs(), found.highest.abs())
            done = torch.maximum(found.lowest_error, found.highest_error) <= tol * largest
            if bool(done.all()):
                break
            previous, v = v, w / _expand(beta, w).clamp(min=torch.finfo(w.dtype).tiny)
            betas.append(beta)
    assert answer is not None
    return answer


def _ritz(alphas: list[Tensor], betas: list[Tensor], last: Tensor) -> Extremes:
    T = torch.diag_embed(torch.stack(alphas, -1))
    if betas:
        off = torch.diag_embed(torch.stack(betas, -1), offset=1)
        T = T + off + off.mT
    values, vectors = torch.linalg.eigh(T)
    errors = last.unsqueeze(-1) * vectors[..., -1, :].abs()
    return Extremes(values[..., 0], values[..., -1], errors[..., 0], errors[..., -1])


def _norm(v: Tensor) -> Tensor:
    return inner(v, v).sqrt()[..., None, None]


def _expand(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar[..., None, None].to(like.dtype)
