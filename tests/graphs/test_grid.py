"""Grids and superpixels as graphs."""

import itertools

import numpy as np
import pytest
import torch
from helpers import normal

from fwcrf.graphs import SparseMRF, grid, superpixels


@pytest.mark.parametrize(
    ("shape", "connectivity", "far"),
    [((5,), 2, 1), ((3, 4), 4, 1), ((3, 4), 8, 2), ((2, 3, 4), 6, 1), ((2, 3, 4), 18, 2), ((2, 3, 4), 26, 3)],
)
def test_neighbours(shape, connectivity, far):
    edges, weights = grid(shape, connectivity)
    places = list(itertools.product(*map(range, shape)))
    expected = {}
    for (a, p), (b, q) in itertools.combinations(enumerate(places), 2):
        steps = [abs(s - t) for s, t in zip(p, q, strict=True)]
        if max(steps) == 1 and sum(steps) <= far:
            expected[a, b] = sum(steps) ** -0.5
    found = {tuple(sorted(e)): w for e, w in zip(edges.tolist(), weights.tolist(), strict=True)}
    assert len(edges) == len(found)
    assert found == pytest.approx(expected)


def test_default_is_the_fewest_neighbours():
    assert torch.equal(grid((3, 4)).edges, grid((3, 4), 4).edges)
    assert len(grid((1, 1)).edges) == 0


def test_weights_from_contrast():
    image = torch.zeros(2, 3, 3)
    image[:, 2] = 6.0
    edges, weights = grid((2, 3), image=image, weight=2.0)
    across = (edges % 3 == 2).sum(-1) == 1
    d2 = 3 * 36.0
    assert torch.allclose(weights[~across], torch.tensor(2.0))
    beta = 1 / (2 * d2 * across.float().mean())
    assert torch.allclose(weights[across], 2 * (-beta * d2).exp())
    given = grid((2, 3), image=np.uint8(image[..., 0].numpy()), beta=0.01).weights
    assert torch.allclose(given[across], torch.tensor(-0.36).exp())
    assert torch.equal(grid((2, 3), image=torch.ones(2, 3)).weights, torch.ones(7))


def test_grids_that_are_none():
    with pytest.raises(ValueError, match="expected 4, 8 for a grid of 2 axes"):
        grid((3, 3), 6)
    with pytest.raises(ValueError, match="one size per axis, 1 or more"):
        grid((3, 0))
    with pytest.raises(ValueError, match="at most 2147483647 nodes"):
        grid((50_000, 50_000))
    with pytest.raises(ValueError, match=r"image has shape \(3, 3\); expected \(2, 3\)"):
        grid((2, 3), image=torch.zeros(3, 3))
    with pytest.raises(ValueError, match="NaN"):
        grid((1, 2), image=torch.tensor([[0.0, torch.nan]]))
    with pytest.raises(ValueError, match="beta=-1"):
        grid((1, 2), image=torch.zeros(1, 2), beta=-1)


def test_superpixels_against_counting():
    regions = torch.randint(0, 6, (9, 11), generator=torch.Generator().manual_seed(0)) * 10 - 20
    s = superpixels(regions)
    assert torch.equal(regions.unique()[s.nodes], regions)
    counted = {}
    for a, b in grid((9, 11)).edges.tolist():
        pair = tuple(sorted((int(s.nodes.flatten()[a]), int(s.nodes.flatten()[b]))))
        if pair[0] != pair[1]:
            counted[pair] = counted.get(pair, 0) + 1
    assert {tuple(e): n for e, n in zip(s.edges.tolist(), s.lengths.tolist(), strict=True)} == counted
    assert s.sizes.sum() == 99
    assert superpixels(regions, 8).lengths.sum() > s.lengths.sum()


def test_values_over_regions():
    regions = np.array([[0, 0, 1], [0, 2, 1]])
    s = superpixels(regions)
    values = normal(4, 2, 3, 5).requires_grad_()
    total = s.total(values)
    assert total.shape == (4, 3, 5)
    assert torch.allclose(total[:, 1], values[:, 0, 2] + values[:, 1, 2])
    assert torch.allclose(s.mean(values)[:, 0], (values[:, 0, 0] + values[:, 0, 1] + values[:, 1, 0]) / 3)
    assert s.spread(torch.tensor([5, 6, 7])).tolist() == [[5, 5, 6], [5, 7, 6]]
    assert torch.autograd.gradcheck(s.mean, values)
    mrf = SparseMRF(s.mean(values).detach(), s.edges, 0.1 * s.lengths)
    assert s.spread(mrf.solve().labels).shape == (4, 2, 3)


def test_a_volume_of_regions():
    s = superpixels(torch.arange(2).view(2, 1, 1).expand(2, 3, 4))
    assert (s.edges.tolist(), s.lengths.tolist()) == ([[0, 1]], [12])


def test_regions_that_are_none():
    with pytest.raises(TypeError, match="expected whole numbers"):
        superpixels(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="at least one pixel"):
        superpixels(torch.zeros(0, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"regions of shape \(2, 2\)"):
        superpixels(torch.zeros(2, 2, dtype=torch.int64)).total(normal(2, 3, 1))
