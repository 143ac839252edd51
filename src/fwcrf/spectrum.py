"""Extreme eigenvalues of a symmetric operator, by Lanczos iteration with three vectors.

Step sizes need the largest eigenvalue of P, convexity needs the smallest. Without reorthogonalisation,
converged eigenvalues reappear as copies. Copies do not change the extremes, and three vectors of memory
suffice for any number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fwcrf.pairwise import inner
from fwcrf.torch_ops.printed import in_one_line


class Extremes(NamedTuple):
    """Extreme eigenvalues per image, ``(*batch,)`` each, and bounds on their errors.

    ``lowest`` and ``highest`` approach the ends of the spectrum from inside. Each has an eigenvalue within
    its error.
    """

    lowest: Tensor
    highest: Tensor
    lowest_error: Tensor
    highest_error: Tensor

    __repr__ = in_one_line


class Top(NamedTuple):
    """The largest eigenvalue per image and the bound on its error, ``(*batch,)`` each."""

    value: Tensor
    error: Tensor
    converged: Tensor  # True if the error is at most the tolerance
    coefficients: Tensor  # (*batch, steps): the eigenvector in terms of the vectors of the iteration

    __repr__ = in_one_line


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
    values, errors, _, _ = _ritz(operator, like, [0, -1], tol, max_steps, seed)
    return Extremes(values[..., 0], values[..., 1], errors[..., 0], errors[..., 1])


def largest_eigenvalue(
    operator: Callable[[Tensor], Tensor], like: Tensor, *, tol: float, max_steps: int = 200, seed: int = 0
) -> Top:
    """The largest eigenvalue, until its error is at most ``tol`` times the largest |eigenvalue|.

    >>> d = torch.tensor([[-2.0], [1.0], [5.0]])
    >>> largest_eigenvalue(lambda x: d * x, torch.zeros(3, 1), tol=1e-6).value.round(decimals=4)
    tensor(5., dtype=torch.float64)
    """
    values, errors, vectors, done = _ritz(operator, like, [-1], tol, max_steps, seed)
    return Top(values[..., 0], errors[..., 0], done, vectors[..., 0])


def eigenvector(
    operator: Callable[[Tensor], Tensor], like: Tensor, coefficients: Tensor, *, seed: int = 0
) -> Tensor:
    """The eigenvector of ``largest_eigenvalue``, ``(*batch, n, L)`` of norm 1.

    A sum over the vectors of the iteration, which is repeated instead of being stored.
    """
    total = torch.zeros_like(like)
    with torch.no_grad():
        for k, (v, _, _) in enumerate(_lanczos(operator, like, coefficients.shape[-1], seed)):
            total = total + _expand(coefficients[..., k], v) * v
    return total / _norm(total).to(total)


def _ritz(
    operator: Callable[[Tensor], Tensor], like: Tensor, ends: list[int], tol: float, max_steps: int, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ritz values and errors, ``(*batch, ends)``, Ritz vectors, ``(*batch, steps, ends)``, convergence."""
    answer, done = None, torch.zeros(like.shape[:-2], dtype=torch.bool, device=like.device)
    with torch.no_grad():
        for _, T, last in _lanczos(operator, like, max_steps, seed):
            values, vectors = torch.linalg.eigh(T)
            errors = last.unsqueeze(-1) * vectors[..., -1, :].abs()
            found = values[..., ends], errors[..., ends], vectors[..., ends]
            if answer is not None:
                # A converged image keeps its values: they do not depend on the rest of its batch.
                before = answer[0], answer[1], torch.nn.functional.pad(answer[2], (0, 0, 0, 1))
                kept = done.unsqueeze(-1), done.unsqueeze(-1), done[..., None, None]
                found = tuple(torch.where(*three) for three in zip(kept, before, found, strict=True))
            answer = found
            done = done | (answer[1].amax(-1) <= tol * values.abs().amax(-1))
            if bool(done.all()):
                break
    assert answer is not None
    values, errors, vectors = answer
    return values, errors, vectors, done


def _lanczos(
    operator: Callable[[Tensor], Tensor], like: Tensor, max_steps: int, seed: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The vector of each step, the tridiagonal matrix so far, ``(*batch, k, k)``, and its next entry."""
    if like.dim() < 2 or like.numel() == 0:
        raise ValueError(
            f"like has shape {tuple(like.shape)}; expected (*batch, n, channels), none of them 0."
        )
    generator = torch.Generator("cpu").manual_seed(seed)
    # All images start alike: the result of an image does not depend on the rest of its batch.
    v = torch.randn(like.shape[-2:], generator=generator, dtype=torch.float64, device="cpu")
    v = v.to(like).expand(like.shape)
    v = v / _norm(v).to(v)
    previous = torch.zeros_like(v)
    alphas: list[Tensor] = []
    betas: list[Tensor] = []
    for _ in range(min(max_steps, like.shape[-2] * like.shape[-1])):
        w = operator(v)
        alpha = inner(v, w)
        if betas:
            # If the Krylov space of an image is exhausted (beta = 0), repeat an earlier value.
            alpha = torch.where(betas[-1] > 0, alpha, alphas[0])
        w = torch.addcmul(w, _expand(alpha, w), v, value=-1)
        if betas:
            w.addcmul_(_expand(betas[-1], w), previous, value=-1)
        beta = inner(w, w).sqrt()
        alphas.append(alpha)
        scale = torch.stack(alphas).abs().amax(0)
        beta = torch.where(beta > torch.finfo(w.dtype).eps * scale, beta, 0.0)
        T = torch.diag_embed(torch.stack(alphas, -1))
        if betas:
            off = torch.diag_embed(torch.stack(betas, -1), offset=1)
            T = T + off + off.mT
        yield v, T, beta
        previous, v = v, w.div_(_expand(beta, w).clamp(min=torch.finfo(w.dtype).tiny))
        betas.append(beta)


def _norm(v: Tensor) -> Tensor:
    return inner(v, v).sqrt()[..., None, None]


def _expand(scalar: Tensor, like: Tensor) -> Tensor:
    return scalar[..., None, None].to(like.dtype)
