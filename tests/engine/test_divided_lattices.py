"""Lattices with more vertices than points, into which several threads splat side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from helpers import assert_rounding, covering, environment, in_process, normal, uniform

import fwcrf
from fwcrf import Energy, _core
from fwcrf.kernels import Bilateral, Lattice, Spatial
from fwcrf.pairwise import Kronecker, Sum, of_image

POINTS, VERTICES, STEPS, TAP, WEIGHT = 397, 700, 3, 0.4, 0.8
ORDERS = {"symmetric": 0, "forward": 1, "reverse": 2}
SOFTMAX = _core.maps().index("softmax")
LIMIT = {np.float32: 1e-5, np.float64: 1e-13}


class Case(NamedTuple):
    """A random lattice, and scores for its points."""

    index: np.ndarray  # (n, corners)
    weight: np.ndarray  # (n, corners)
    neighbors: np.ndarray  # (corners, vertices, 2)
    unary: np.ndarray  # (n, labels)


def random_case(corners: int, labels: int, dtype: type, numbering: str, seed: int) -> Case:
    """``numbering``: of vertices by the points that touch each first, as lattices have it, or any."""
    rng = np.random.default_rng(seed)
    near = np.arange(POINTS)[:, None] * VERTICES // POINTS + rng.integers(-40, 40, (POINTS, corners))
    index = near.clip(0, VERTICES - 1)
    shared = rng.random(index.shape) < 0.05
    index[shared] = rng.integers(0, VERTICES, shared.sum())
    touched, first = np.unique(index, return_index=True)
    numbers = rng.permutation(VERTICES)
    if numbering == "by first touch":
        untouched = np.setdiff1d(np.arange(VERTICES), touched)
        numbers[np.concatenate([touched[np.argsort(first)], untouched])] = np.arange(VERTICES)
    neighbors = np.full((corners, VERTICES, 2), VERTICES, np.int32)
    for axis in neighbors:
        for line in np.split(rng.permutation(VERTICES), np.sort(rng.choice(VERTICES, 300, replace=False))):
            axis[line[1:], 0], axis[line[:-1], 1] = line[:-1], line[1:]
    weight = rng.uniform(0, 1 / corners, index.shape).astype(dtype)
    unary = rng.uniform(0, 3, (POINTS, labels)).astype(dtype)
    return Case(numbers[index].astype(np.int32), weight, neighbors, unary)


def filtered(case: Case, x: np.ndarray, order: str) -> np.ndarray:
    """K x in float64, vertex by vertex."""
    values = np.zeros((VERTICES + 1, x.shape[1]))
    weight = case.weight.astype(np.float64)[..., None]
    np.add.at(values, case.index, weight * x[:, None])
    axes = [*case.neighbors]
    ways = {"forward": [axes], "reverse": [axes[::-1]], "symmetric": [axes, axes[::-1]]}[order]
    found = []
    for way in ways:
        blurred = values.copy()
        for pairs in way:
            blurred[:-1] += TAP * blurred[pairs].sum(1)
        found.append(blurred)
    return (weight * np.mean(found, axis=0)[case.index]).sum(1)


def softmax(v: np.ndarray) -> np.ndarray:
    e = np.exp(v - v.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def expected(case: Case, order: str, compat: np.ndarray | None, more: Sequence[Case] = ()) -> np.ndarray:
    """Steps of mean field with the lattices of ``case`` and of ``more``."""
    u = case.unary.astype(np.float64)
    x = softmax(-u)
    for _ in range(STEPS):
        y = WEIGHT * sum(filtered(one, x, order) for one in (case, *more))
        x = softmax(y - u) if compat is None else softmax(-(y / WEIGHT) @ compat - u)
    return x


def steps(
    case: Case, order: str, compat: np.ndarray | None, threads: int, more: Sequence[Case] = ()
) -> np.ndarray:
    """The same by the engine, in steps that splat their results."""
    n, labels = case.unary.shape
    dtype = case.unary.dtype
    model = (_core.ModelF32 if dtype == np.float32 else _core.ModelF64)()
    for one in (case, *more):
        weight = one.weight[None]
        model.add_lattice(one.index[None], weight, weight, one.neighbors, None, TAP, 0.0, ORDERS[order])
    out = np.empty((1, n, labels), dtype)
    moves = np.array([(SOFTMAX, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0)] * STEPS)
    terms = 1 + len(more)
    unary, weights = case.unary[None], np.full(terms, 0.0 if compat is not None else WEIGHT)
    finite, *_ = model.run(
        unary, (SOFTMAX, -1.0, None, out, 1.0), unary, weights, [compat] * terms, moves, [out] * STEPS, [],
        None, None, None, False, threads, [], [], None,
    )  # fmt: skip
    assert finite
    return out[0]


@covering(
    corners=[3, 4, 6],
    labels=[3, 21, 70],
    dtype={"float32": np.float32, "float64": np.float64},
    numbering=["by first touch", "any"],
    order=list(ORDERS),
    threads=[1, 2, 3, 4],
)
def test_steps_with_more_vertices_than_points(corners, labels, dtype, numbering, order, threads):
    for seed in range(3):
        case = random_case(corners, labels, dtype, numbering, seed)
        x = steps(case, order, None, threads)
        np.testing.assert_allclose(x, expected(case, order, None), rtol=0, atol=LIMIT[dtype])
        np.testing.assert_array_equal(steps(case, order, None, threads), x, "differs from run to run")


@pytest.mark.parametrize("threads", [2, 4])
def test_matrices_on_divided_lattices(threads):
    case = random_case(6, 5, np.float64, "by first touch", 0)
    compat = np.random.default_rng(1).normal(size=(5, 5))
    compat += compat.T
    x = steps(case, "symmetric", compat, threads)
    np.testing.assert_allclose(x, expected(case, "symmetric", compat), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["forward", "symmetric"])
def test_beside_a_lattice_that_is_not_divided(order):
    """One thread splats into the second lattice: numbered in any order, it has too many own rows."""
    one, other = (random_case(6, 21, np.float64, numbering, 0) for numbering in ("by first touch", "any"))
    for threads in (2, 3, 4):
        x = steps(one, order, None, threads, [other])
        np.testing.assert_allclose(x, expected(one, order, None, [other]), rtol=0, atol=1e-13)


def test_fewer_threads_than_asked_for():
    """Each then takes one part or more."""
    case = random_case(6, 21, np.float64, "by first touch", 0)
    with environment(OMP_THREAD_LIMIT="2"):
        found = in_process(several_counts, case)
    for x in found:
        np.testing.assert_allclose(x, expected(case, "forward", None), rtol=0, atol=1e-13)


def several_counts(case: Case) -> list[np.ndarray]:
    return [steps(case, "forward", None, threads) for threads in (3, 4)]


@pytest.mark.parametrize("solver", ["mf", "l2fw"])
@pytest.mark.parametrize("threads", [2, 3, 4])
def test_beside_a_grid(solver, threads, num_threads):
    """Parts are whole rows of the image, and steps may become lazy."""
    height, width = 43, 51
    kernels = [Bilateral(8.0, 0.02), Spatial(1.5)]
    pairwise = of_image(kernels, uniform(3, height, width), 21)
    assert isinstance(pairwise, Sum) and isinstance(first := pairwise.terms[0], Kronecker)
    assert isinstance(first.operator, Lattice) and first.operator.vertices > height * width
    E = Energy(pairwise, 4 * normal(height * width, 21, seed=3))
    num_threads(1)
    one = fwcrf.minimize(E, solver, num_steps=10).probabilities
    num_threads(threads)
    several = fwcrf.minimize(E, solver, num_steps=10).probabilities
    assert_rounding(several, one, times=100)
    assert torch.equal(fwcrf.minimize(E, solver, num_steps=10).probabilities, several)
