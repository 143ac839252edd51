"""What lattices are fitted with: sums of the exact kernel, and weights by place in the simplex."""

import pytest
import torch
from torch.testing import assert_close

from fwcrf import _core
from fwcrf.kernels import Lattice, Spatial, calibration
from fwcrf.torch_ops import lattice as ops
from fwcrf.torch_ops.exact import exact_block, exact_sums


def points(*shape, dtype, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows, columns, d", [(1, 1, 1), (3, 8, 5), (7, 33, 2), (128, 2048, 5), (5, 9, 16)])
def test_sums_of_the_kernel_are_those_of_its_entries(rows, columns, d, dtype):
    a, b = points(2, rows, d, dtype=dtype), points(2, columns, d, dtype=dtype, seed=1)
    expected = (-0.5 * torch.cdist(a.double(), b.double()).square()).exp().sum(-1)
    assert_close(exact_sums(a, b), expected.to(dtype), rtol=2e-6 if dtype == torch.float32 else 1e-13, atol=0)


def test_sums_are_the_same_on_any_number_of_threads():
    a, b = points(1, 301, 5, dtype=torch.float32), points(1, 77, 5, dtype=torch.float32, seed=1)
    found = []
    for threads in (1, 2, 3):
        out = torch.empty(1, 301)
        _core.gaussian_sums(a, b, out, threads)
        found.append(out)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_sums_far_from_everything_are_zero():
    far = torch.full((1, 3, 5), 1e6)
    assert torch.equal(exact_sums(far, torch.zeros(1, 9, 5)), torch.zeros(1, 3))


def test_sums_that_are_learned_from_agree_with_those_that_are_not():
    a, b = points(2, 6, 3, dtype=torch.float64), points(2, 11, 3, dtype=torch.float64, seed=1)
    learned = exact_sums(a.clone().requires_grad_(), b)
    assert learned.requires_grad
    assert_close(learned.detach(), exact_sums(a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("corners", [2, 4, 6, 17])
@pytest.mark.parametrize("n", [1, 5, 8, 1003])
def test_weights_by_place_are_those_of_the_formula(n, corners, dtype):
    weight, factor = points(3, n, corners, dtype=dtype).abs(), points(3, 1, dtype=dtype, seed=1)
    learned = ops.placed(weight.clone().requires_grad_(), -0.3, factor)
    assert learned.requires_grad
    assert_close(ops.placed(weight, -0.3, factor), learned.detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("corners", [2, 6, 17])
def test_weights_by_point_are_products(corners, dtype):
    weight, factor = points(3, 101, corners, dtype=dtype), points(3, 101, dtype=dtype, seed=1)
    assert torch.equal(ops.scaled_rows(weight, factor), weight * factor.unsqueeze(-1))
    shared = points(101, dtype=dtype, seed=2)
    assert torch.equal(ops.scaled_rows(weight, shared), weight * shared.unsqueeze(-1))
    assert ops.scaled_rows(weight, factor.clone().requires_grad_()).requires_grad
    known = [points(3, 101, dtype=dtype, seed=3), points(3, 101, dtype=dtype, seed=4)]
    both, diagonals = ops.scaled_both_ways(weight, factor, known)
    assert torch.equal(both, weight * factor.unsqueeze(-1))
    for found, own in zip(diagonals, known, strict=True):
        assert torch.equal(found, factor * own * factor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 2, 1), (300, 5), (2, 50, 3), (2, 3, 20, 7)], ids=str)
@pytest.mark.parametrize("place", [0.0, -0.4])
@pytest.mark.filterwarnings("ignore:all .* points lie in lattice cells of their own")
def test_samples_in_one_call_are_those_that_are_learned_from(shape, place, dtype):
    features = points(*shape, dtype=dtype)
    lattice = Lattice.uncalibrated(features)
    at_once = calibration._sample(features, lattice, 20, place)
    step_by_step = calibration._sample(features.clone().requires_grad_(), lattice, 20, place)
    for one, other in zip(at_once, step_by_step, strict=True):
        assert_close(one, other.detach(), rtol=2e-5 if dtype == torch.float32 else 1e-12, atol=0)


def test_samples_of_points_that_are_none_are_refused():
    features = points(1, 9, 2, dtype=torch.float32)
    lattice = Lattice.uncalibrated(features)
    tables = lattice.index, lattice.splat, lattice.neighbors
    for bad in ([0, 9], [-1, 3]):
        with pytest.raises(ValueError, match="points that there are"):
            ops.sampled_sums(features, torch.tensor(bad), 1, *tables, -0.1, 0.5, 0.0, 0)
    with pytest.raises(ValueError, match="rows and columns"):
        ops.sampled_sums(features, torch.tensor([0, 1]), 2, *tables, -0.1, 0.5, 0.0, 0)


def test_kernels_of_grids_made_in_inference_mode_serve_for_learning():
    image, x = torch.zeros(3, 4, 77), torch.ones(4 * 77, 2, requires_grad=True)
    with torch.inference_mode():
        Spatial(2.5).operator(image)
    K = Spatial(2.5).operator(image)
    assert K is Spatial(2.5).operator(image)
    K(x).sum().backward()
    assert_close(x.grad, K.T(torch.ones_like(x)).detach())


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one sum per row"):
        _core.gaussian_sums(torch.zeros(1, 3, 2), torch.zeros(1, 4, 2), torch.zeros(1, 4), 1)
    with pytest.raises(ValueError, match="features of one kind"):
        _core.gaussian_sums(torch.zeros(1, 3, 2), torch.zeros(1, 4, 3), torch.zeros(1, 3), 1)
    with pytest.raises(ValueError, match="at most 0"):
        _core.placed(torch.zeros(1, 3, 6), torch.ones(1), 0.1, torch.zeros(1, 3, 6), 1)
    with pytest.raises(ValueError, match="up to two diagonals"):
        _core.scaled_rows(torch.zeros(3, 6), torch.ones(3), torch.zeros(3, 6), [torch.ones(3)], [], 1)


def test_derivatives_of_sums_are_those_of_the_filter():
    """Of first order by one kernel for rows and columns, of higher order by operations."""
    a, b = (points(2, n, 3, dtype=torch.float64, seed=n).requires_grad_() for n in (6, 11))
    g = points(2, 6, dtype=torch.float64, seed=3)
    expected = torch.autograd.grad(exact_block(torch.ones(2, 11, 1).double(), a, b).squeeze(-1), (a, b), g)
    for again in (False, True):
        found = torch.autograd.grad(exact_sums(a, b), (a, b), g, create_graph=again)
        assert_close([t.detach() for t in found], list(expected))
        assert found[0].requires_grad == again
