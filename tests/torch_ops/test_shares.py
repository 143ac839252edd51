"""Probabilities at some pixels of a grid: native code against torch."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from fwcrf import _core
from fwcrf.torch_ops.shares import best_labels, rarity, rarity_in

WINDOWS = {
    (9,): (slice(1, 9, 3),),
    (7, 11): (slice(0, 7, 2), slice(3, 10, 1)),
    (5, 4, 6): (slice(0, 5, 1), slice(1, 4, 2), slice(2, 6, 3)),
}


def energies(grid, batch, labels, dtype):
    generator = torch.Generator().manual_seed(labels)
    n = torch.Size(grid).numel()
    return 3 * torch.randn(*batch, n, labels, generator=generator, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("labels", [1, 2, 21, 70])
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("grid", WINDOWS, ids=str)
def test_native_code_finds_the_labels_that_torch_finds(grid, batch, labels, dtype):
    unary, window = energies(grid, batch, labels, dtype), WINDOWS[grid]
    some = unary.unflatten(-2, grid)[(..., *window, slice(None))].flatten(-1 - len(grid), -2)
    p = torch.softmax(-some, -1)
    best, found = best_labels(unary, grid, window)
    assert np.array_equal(found, p.argmax(-1).view(len(found), -1))
    assert_close(torch.from_numpy(best), p.amax(-1).view(len(found), -1))
    assert_close(rarity_in(unary, grid, window, 0.01), rarity(-some, 0.01))
    assert_close(rarity_in(unary.requires_grad_(), grid, window, 0.01).detach(), rarity(-some.detach(), 0.01))


def test_of_equal_labels_the_first_is_the_best_one_and_a_forbidden_label_has_no_share():
    unary = torch.tensor([[2.0, 1.0, 1.0], [torch.inf, 3.0, torch.inf]])
    best, labels = best_labels(unary, (2,), (slice(0, 2),))
    assert labels.tolist() == [[1, 1]] and best[0, 1] == 1
    assert rarity_in(unary, (2,), (slice(1, 2),), 0.01).tolist() == [[0, 0, 0]]


def test_results_agree_on_any_number_of_threads():
    unary = energies((30, 40), (2,), 5, torch.float32).numpy()
    window, found = [(30, 0, 1, 30), (40, 0, 1, 40)], []
    for threads in (1, 2, 3):
        best, labels = np.zeros((2, 1200), np.float32), np.zeros((2, 1200), np.int64)
        rare = np.zeros((2, 5), np.float32)
        _core.best_labels(unary, window, best, labels, threads)
        _core.rarity(unary, window, 0.01, rare, threads)
        found.append((best, labels, rare))
    for best, labels, rare in found[1:]:
        assert np.array_equal(best, found[0][0]) and np.array_equal(labels, found[0][1])
        assert np.allclose(rare, found[0][2], rtol=1e-5)


WRONG = [
    [(12, 0, 1, 13)], [(12, 12, 1, 1)], [(12, -1, 1, 2)], [(12, 0, 0, 2)], [(12, 1, 11, 2)], [],
    [(12, 0, 2**62, 3)], [(11, 0, 1, 1)], [(2**62, 0, 1, 1), (4, 0, 1, 1)],
]  # fmt: skip


@pytest.mark.parametrize("window", WRONG, ids=str)
def test_pixels_outside_the_grid_are_refused(window):
    unary, rare = np.zeros((1, 12, 3), np.float32), np.zeros((1, 3), np.float32)
    with pytest.raises(ValueError):
        _core.rarity(unary, window, 0.01, rare, 1)
