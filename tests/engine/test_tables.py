"""Derivatives in the tables of kernels, through which bandwidths are learned."""

from __future__ import annotations

import math

import pytest
import torch

from fwcrf import DenseCRF, _core
from fwcrf.compatibility import symmetric
from fwcrf.engine.tables import CoarseSlopes, TapSlopes, slopes, tables
from fwcrf.kernels import Bilateral, Lattice, Spatial
from fwcrf.kernels.operator import Shifted
from fwcrf.kernels.separable import Separable


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("shape", "xy", "labels", "normalization"), [
    ((30, 41), (3.0, 3.0), 5, "symmetric"),
    ((24, 33), (5.0, 3.2), 37, "symmetric"),
    ((20, 31), (4.0, 6.1), 8, "none"),
    ((64,), (4.0,), 3, "symmetric"),
    ((7, 8), (3.0, 3.0), 3, "symmetric"),
    ((12, 14, 17), (3.0, 3.0, 4.0), 2, "symmetric"),
])  # fmt: skip
def test_a_coarse_grid_gives_the_derivative_in_bandwidths(shape, xy, labels, normalization):
    """Two steps, of two images each, against the exact kernel in float64."""
    s = torch.tensor(xy, dtype=torch.float64, requires_grad=True)
    n = math.prod(shape)
    steps = [(random(2, n, labels, seed=k).softmax(-1), random(2, n, labels, seed=9 + k)) for k in (0, 1)]
    exact = Separable.build(shape, s, torch.zeros((), dtype=torch.float64)).normalized(normalization)
    (true,) = torch.autograd.grad(sum((g * exact.apply(x)).sum() for x, g in steps), s)
    single = Separable.build(shape, s, torch.zeros(())).normalized(normalization)
    given = tables(single)
    found = slopes(single, [t.detach() for t in given])
    assert isinstance(found, CoarseSlopes)
    for x, g in steps:
        found.add(x.float(), g.float())
    (mine,) = torch.autograd.grad(given, s, found.found())
    assert (mine - true).norm() < 5e-4 * true.norm()


@pytest.mark.parametrize(("xy", "dtype"), [((1.0, 4.0), torch.float32), ((4.0, 4.0), torch.float64)])
def test_without_a_coarse_grid_all_taps_are_used(xy, dtype):
    K = Separable.build((14, 17), xy, torch.zeros((), dtype=dtype)).normalized("symmetric")
    assert K.coarse is None and isinstance(slopes(K, tables(K)), TapSlopes)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("labels", "batch", "d"), [(3, 0, 2), (21, 2, 5), (40, 0, 5), (2, 3, 8), (1, 0, 5)])
def test_slopes_of_a_lattice_are_those_of_autograd(labels, batch, d, full):
    features = random(*([batch] if batch else []), 50, d, seed=3)
    K = Lattice.symmetric(features).without_self_edges()
    given = [t.detach().requires_grad_() for t in tables(K)]
    steps = [(random(*features.shape[:-1], labels, seed=k), random(*features.shape[:-1], labels, seed=9 + k))
             for k in (0, 1)]  # fmt: skip
    M = symmetric(random(labels, labels, seed=5)) if full else torch.eye(labels, dtype=torch.float64)
    found = slopes(K, given, M if full else None)
    replaced = found.operator  # the same kernel, of these tables
    expected = torch.autograd.grad(sum((g * (replaced.apply(x) @ M)).sum() for x, g in steps), given)
    for x, g in steps:
        found.add(x, g)
    for one, other in zip(found.found(), expected, strict=True):
        assert torch.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("labels", [1, 11, 70])
@pytest.mark.parametrize("full", [False, True])
def test_slopes_of_what_is_added_to_a_diagonal(labels, full):
    K = Separable.build((5, 6), (2.0, 2.0), torch.zeros((), dtype=torch.float64)).normalized("symmetric")
    shifted = K.without_self_edges()
    assert isinstance(shifted, Shifted)
    x, g = random(3, 30, labels), random(3, 30, labels, seed=1)
    M = symmetric(random(labels, labels, seed=5)) if full else torch.eye(labels, dtype=torch.float64)
    found = slopes(shifted, tables(shifted), M if full else None)
    found.add(x, g)
    assert torch.allclose(found.found()[-1], (x @ M * g).sum((0, -1)))


@pytest.mark.parametrize(("outer", "size", "inner", "labels", "reach"), [
    (1, 5, 3, 1, 9), (2, 37, 9, 21, 6), (70, 20, 1, 32, 4), (3, 18, 40, 5, 0),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_of_rows_near_each_other(outer, size, inner, labels, reach, dtype):
    cell = -(-labels // 16) * 16
    left, right = (random(outer, size, inner, cell, seed=k).to(dtype) for k in (0, 1))
    found = torch.ones(size, size, dtype=dtype)
    _core.band_products(left, right, labels, reach, found, 2)
    expected = 1 + torch.einsum("oipl,ojpl->ij", left[..., :labels], right[..., :labels])
    at = torch.arange(size)
    near = (at[:, None] - at).abs() <= reach
    assert torch.allclose(found[near], expected[near], atol=1e-4)


@pytest.mark.parametrize("weights", ["scalar", "full"])
def test_single_precision_learns_the_bandwidths_of_double(weights):
    """Potts terms are multiplied by their weight once, matrices in every step."""
    image, logits = 40 * random(2, 3, 30, 35).abs(), 2 * random(2, 7, 30, 35, seed=1)
    found = []
    for dtype in (torch.float32, torch.float64):
        layer = DenseCRF(
            7, [Spatial(3.0, 0.7), Bilateral(12.0, 20.0, 1.3)], num_steps=3,
            learnable=("bandwidths", "weights"), weights=weights,
        ).to(dtype)  # fmt: skip
        out = layer(image.to(dtype), logits.to(dtype))
        (out * random(*out.shape, seed=2).to(dtype)).sum().backward()
        found.append(torch.cat([p.grad.double().flatten() for p in layer.log_bandwidths.values()]))
    assert (found[0] - found[1]).norm() < 2e-3 * found[1].norm()


@pytest.mark.parametrize(("labels", "solver"), [
    (2, "l2fw"), (5, "mf"), (9, "l2fw"), (11, "mf"), (12, "l2fw"), (21, "l2fw"), (30, "mf"),
])  # fmt: skip
@pytest.mark.parametrize("weights", ["scalar", "full"])
def test_native_steps_add_up_the_derivatives_of_generic_operations(labels, solver, weights):
    """Of an image whose lattice is so small that the run keeps it, and matrices are applied to it."""
    rows = torch.linspace(0, 40, 26, dtype=torch.float64)[:, None]
    image = (rows + torch.linspace(0, 25, 31, dtype=torch.float64)).expand(2, 3, -1, -1)
    logits = 2 * random(2, labels, 26, 31, seed=1)
    torch.manual_seed(0)
    layer = DenseCRF(
        labels, [Spatial(2.0, 0.7), Bilateral(20.0, 30.0, 1.3)], solver=solver, num_steps=3,
        learnable=("bandwidths", "weights", "steps", "lambda"), weights=weights, noise=0.1,
    ).double()  # fmt: skip
    with torch.no_grad():
        layer.raw_steps.copy_(torch.tensor([1.0, 0.8, 0.6]))
    assert 2 * layer.kernels[1].operator(image[:1]).vertices < 26 * 31
    of_result, parameters = random(*logits.shape, seed=2), list(layer.parameters())
    native = torch.autograd.grad((layer(image, logits) * of_result).sum(), parameters)
    loss = (layer(image, logits) * of_result).sum()
    generic = torch.autograd.grad(loss, parameters, create_graph=True)
    for one, other in zip(native, generic, strict=True):
        assert (one - other).norm() < 1e-8 * other.norm()
