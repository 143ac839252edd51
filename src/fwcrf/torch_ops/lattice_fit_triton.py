"""Weights of a lattice fitted to its kernel, in Triton: placement, scale, and division by row sums."""

# pyright: reportMissingImports=false, reportArgumentType=false, reportIndexIssue=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

POINTS = 64  # of a block
ROWS, COLUMNS = 16, 128


@triton.jit
def place_kernel(
    weight,  # (points, CORNERS)
    factor,  # (images)
    out,  # (points, CORNERS)
    points,
    n,  # points of an image
    EXPONENT: tl.constexpr,
    CORNERS: tl.constexpr,
    WIDE: tl.constexpr,
    POINTS: tl.constexpr,
):
    """out = factor exp(EXPONENT |w|^2) w, for the weights w of each point."""
    point = tl.program_id(0).to(tl.int64) * POINTS + tl.arange(0, POINTS)
    there = point < points
    column = tl.arange(0, WIDE)
    mask = there[:, None] & (column < CORNERS)[None, :]
    at = point[:, None] * CORNERS + column[None, :]
    w = tl.load(weight + at, mask=mask, other=0.0)
    scale = tl.load(factor + point // n, mask=there, other=0.0) * tl.exp(EXPONENT * tl.sum(w * w, 1))
    tl.store(out + at, scale[:, None] * w, mask=mask)


@triton.jit
def sums_kernel(
    left,  # (images, rows, D)
    right,  # (images, columns, D)
    out,  # (images, rows)
    rows,
    columns,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """out_i = sum_j exp(-|left_i - right_j|^2 / 2)."""
    image = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = row < rows
    total = tl.zeros((ROWS,), dtype=out.dtype.element_ty)
    for start in range(0, columns, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        distance = tl.zeros((ROWS, COLUMNS), dtype=out.dtype.element_ty)
        for k in tl.static_range(D):
            a = tl.load(left + (image * rows + row) * D + k, mask=there, other=0.0)
            b = tl.load(right + (image * columns + column) * D + k, mask=column < columns, other=0.0)
            distance += (a[:, None] - b[None, :]) * (a[:, None] - b[None, :])
        near = tl.where((column < columns)[None, :], tl.exp(distance * -0.5), 0.0)
        total += tl.sum(near, 1)
    tl.store(out + image * rows + row, total, mask=there)


@triton.jit
def fit_kernel(
    exact,  # (images, rows)
    approximate,  # (images, rows)
    out,  # (images)
    rows,
    FALLBACK: tl.constexpr,
    LEAST: tl.constexpr,
    MOST: tl.constexpr,
    ROWS: tl.constexpr,  # a power of 2 >= rows
):
    """The factor by which the approximate sums of an image fit the exact ones best."""
    image = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, ROWS)
    a = tl.load(exact + image * rows + row, mask=row < rows, other=0.0).to(tl.float64)
    b = tl.load(approximate + image * rows + row, mask=row < rows, other=0.0).to(tl.float64)
    over, under = tl.sum(a * b, 0), tl.sum(b * b, 0)
    fallback = tl.full((), FALLBACK, dtype=tl.float64)
    factor = tl.where(under > LEAST, over / tl.where(under > LEAST, under, 1.0), fallback)
    factor = tl.minimum(tl.maximum(factor, fallback / MOST), fallback * MOST)
    tl.store(out + image, factor.to(out.dtype.element_ty))


@triton.jit
def divide_kernel(
    weight,  # (points, CORNERS)
    own,  # (points): the diagonal of the kernel
    sliced,  # (points): its row sums
    out,  # (points, CORNERS)
    shift,  # (points)
    minus,  # (points)
    points,
    CORNERS: tl.constexpr,
    WIDE: tl.constexpr,
    POINTS: tl.constexpr,
):
    """The kernel with ones on its diagonal, divided by the roots of its row sums."""
    point = tl.program_id(0).to(tl.int64) * POINTS + tl.arange(0, POINTS)
    there = point < points
    column = tl.arange(0, WIDE)
    mask = there[:, None] & (column < CORNERS)[None, :]
    at = point[:, None] * CORNERS + column[None, :]
    diagonal = tl.load(own + point, mask=there, other=0.0)
    total = tl.load(sliced + point, mask=there, other=0.0) + (1 - diagonal)
    factor = 1 / tl.sqrt(total)
    tl.store(out + at, factor[:, None] * tl.load(weight + at, mask=mask, other=0.0), mask=mask)
    tl.store(shift + point, (1 - diagonal) * factor * factor, mask=there)
    tl.store(minus + point, -diagonal * factor * factor, mask=there)


def _over_points(weight: Tensor) -> tuple[tuple[int], dict[str, int]]:
    corners = weight.shape[-1]
    blocks = {"CORNERS": corners, "WIDE": triton.next_power_of_2(corners), "POINTS": POINTS}
    return (triton.cdiv(weight.numel() // corners, POINTS),), blocks


def place(weight: Tensor, exponent: float, factor: Tensor) -> Tensor:
    """As ``lattice.placed``, for weights ``(*batch, n, corners)`` and a factor ``(*batch, 1)``."""
    weight, factor = weight.detach().contiguous(), factor.detach().contiguous()
    out = torch.empty_like(weight)
    if out.numel():
        grid, blocks = _over_points(weight)
        points, n = weight.numel() // weight.shape[-1], weight.shape[-2]
        place_kernel[grid](weight, factor, out, points, n, EXPONENT=exponent, **blocks)
    return out


def gaussian_sums(left: Tensor, right: Tensor) -> Tensor:
    """sum_j exp(-|left_i - right_j|^2 / 2), ``(images, rows)``."""
    left, right = left.detach().contiguous(), right.detach().contiguous()
    images, rows, d = left.shape
    out = left.new_empty(images, rows)
    if out.numel():
        sums_kernel[(triton.cdiv(rows, ROWS), images)](
            left, right, out, rows, right.shape[1], D=d, ROWS=ROWS, COLUMNS=COLUMNS
        )
    return out


def fitted(exact: Tensor, approximate: Tensor, fallback: float, least: float, most: float) -> Tensor:
    """As ``lattice.fitted_scale``, in the dtype of the sums ``(*batch, rows)``."""
    exact, approximate = exact.detach().contiguous(), approximate.detach().contiguous()
    rows = exact.shape[-1]
    out = exact.new_empty(*exact.shape[:-1], 1)
    fit_kernel[(out.numel(),)](
        exact, approximate, out, rows, FALLBACK=fallback, LEAST=least, MOST=most,
        ROWS=triton.next_power_of_2(rows),
    )  # fmt: skip
    return out


def divide(weight: Tensor, own: Tensor, sliced: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Normalised weights, and both diagonals of ``lattice.symmetric_lattice``."""
    out = torch.empty_like(weight)
    shift, minus = torch.empty_like(own), torch.empty_like(own)
    grid, blocks = _over_points(weight)
    divide_kernel[grid](weight, own, sliced, out, shift, minus, own.numel(), **blocks)
    return out, shift, minus
