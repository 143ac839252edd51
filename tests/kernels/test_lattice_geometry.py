"""What the tables of a lattice mean, checked against its definition rather than against each other."""

import itertools

import pytest
import torch
from helpers import assert_rounding, normal, points

from fwcrf.kernels import Exact, Lattice
from fwcrf.torch_ops.lattice_torch import unpack_order

every_dimension = pytest.mark.parametrize("d", [1, 2, 3, 5, 6, 8, 11, 12, 16])
every_engine = pytest.mark.parametrize("engine", ["native", "torch"])


def build(d, engine, n=120):
    features = points(n, d) * 2
    return features, Lattice.uncalibrated(features, engine=engine)


def steps(d):
    """The d + 1 steps up the axes of the lattice, in features: (d + 1, d).

    In d + 1 coordinates that sum to zero a step is 1 everywhere and -d at its axis. Feature i there is
    the direction (1, ..., 1, -(i + 1), 0, ..., 0) with i + 1 ones, stretched so that the blur of all axes
    has the variance of the Gaussian.
    """
    basis = torch.zeros(d + 1, d, dtype=torch.float64)
    for i in range(d):
        basis[: i + 1, i] = 1
        basis[i + 1, i] = -(i + 1)
    basis /= basis.norm(dim=0)
    up = 1.0 - (d + 1) * torch.eye(d + 1, dtype=torch.float64)
    return up @ basis / ((2 / 3) ** 0.5 * (d + 1))


@every_dimension
@every_engine
def test_weights_are_barycentric(d, engine):
    _, K = build(d, engine)
    assert K.splat.min() >= -1e-12
    assert_rounding(K.splat.sum(-1), torch.ones(K.n, dtype=torch.float64))


@every_dimension
@every_engine
def test_order_is_a_permutation_of_the_axes(d, engine):
    _, K = build(d, engine)
    axes = unpack_order(K.order, d + 1)
    assert torch.equal(axes.sort(-1).values, torch.arange(d + 1).expand(K.n, -1))


@every_dimension
@every_engine
def test_corners_follow_the_axes(d, engine):
    """From corner m one step up axis order[m] leads to corner m + 1, and from the last to the first."""
    _, K = build(d, engine)
    axes = unpack_order(K.order, d + 1)
    for m in range(d):
        up = K.neighbors[axes[:, m], K.index[:, m].long(), 1]
        assert torch.equal(up, K.index[:, m + 1])


@every_dimension
@every_engine
def test_neighbors_are_mutual(d, engine):
    _, K = build(d, engine)
    here = torch.arange(K.vertices)
    assert K.neighbors.shape == (d + 1, K.vertices, 2)
    assert (K.neighbors < K.vertices).any()
    for axis, way in itertools.product(range(d + 1), range(2)):
        there = K.neighbors[axis, :, way].long()
        found = there < K.vertices
        assert torch.equal(K.neighbors[axis, there[found], 1 - way].long(), here[found])
        assert (there != here).all()


@every_dimension
@every_engine
def test_vertices_are_numbered_by_first_touch(d, engine):
    _, K = build(d, engine)
    flat = K.index.flatten().tolist()
    assert list(dict.fromkeys(flat)) == list(range(K.vertices))


@every_dimension
@every_engine
def test_points_are_where_their_weights_say(d, engine):
    """First corner plus weighted steps: points with a common corner agree on where it is."""
    features, K = build(d, engine)
    axes = unpack_order(K.order, d + 1)[:, :d]
    reached = steps(d)[axes].cumsum(1)  # (n, d, d): corners 1..d relative to corner 0
    first = features - (K.splat[:, 1:, None] * reached).sum(1)
    corners = torch.cat([first.unsqueeze(1), first.unsqueeze(1) + reached], 1).flatten(0, 1)
    index = K.index.flatten().long()
    place = torch.zeros(K.vertices, d, dtype=torch.float64)
    place[index] = corners  # any of the points that touch the vertex
    assert len(index) > K.vertices
    assert_rounding(corners, place[index], times=100)
    # Different vertices are in different places.
    distances = torch.cdist(place, place) + torch.eye(K.vertices, dtype=torch.float64) * 100
    assert distances.min() > 0.9 * steps(d).norm(dim=-1).min()


@every_engine
def test_images_share_no_vertices(engine):
    K = Lattice.uncalibrated(points(1, 30, 3).expand(3, -1, -1), engine=engine)
    alone = Lattice.uncalibrated(points(30, 3), engine=engine)
    assert K.vertices == 3 * alone.vertices
    for i in range(3):
        assert torch.equal(K.index[i], alone.index + i * alone.vertices)


@every_engine
def test_moving_all_points_by_a_lattice_vector_changes_nothing(engine):
    features = points(50, 3)
    moved = features + 5 * steps(3)[1] - 2 * steps(3)[3]
    K, M = (Lattice.uncalibrated(f, engine=engine) for f in (features, moved))
    assert_rounding(M.to_dense(), K.to_dense(), times=100)


@every_engine
@pytest.mark.parametrize(("d", "error"), [(1, 0.06), (2, 0.08), (3, 0.1), (5, 0.2)])
def test_close_to_the_exact_kernel_in_every_dimension(engine, d, error):
    """Many points in a small box, so that few cells are missing."""
    features = 3 * torch.rand(1500, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = normal(1500, 3).abs()
    approximate, exact = Lattice.build(features, engine=engine)(x), Exact(features)(x)
    assert (approximate - exact).norm() < error * exact.norm()


@every_engine
@pytest.mark.parametrize("shape", [(40, 3), (2, 40, 5)], ids=str)
@pytest.mark.parametrize("form", ["plain", "shifted", "scaled apart"])
def test_restricted_to_some_points_is_a_block(engine, shape, form):
    K = Lattice.build(points(*shape), engine=engine)
    vector = torch.linspace(0.5, 1.5, 40, dtype=torch.float64).expand(shape[:-1])
    if form == "shifted":
        K = K.shifted(vector)
    if form == "scaled apart":
        K = K.scaled(vector, vector.flip(-1)).shifted(vector)
    some = torch.tensor([3, 39, 0, 17, 18])
    block = K.restricted(some)
    assert_rounding(block.to_dense(), K.to_dense()[..., some, :][..., some])
    assert_rounding(block.diagonal(), K.diagonal()[..., some])
    assert_rounding(block.T.to_dense(), block.to_dense().mT)


@every_dimension
@pytest.mark.parametrize("spread", [0.1, 1.0, 20.0])
def test_no_entry_is_negative(d, spread):
    """So every row sums to at least 1, and the symmetric form need not look for rows to divide by."""
    K = Lattice.build(points(60, d) * spread).with_unit_diagonal()
    assert K.to_dense().min() >= 0
    assert K.row_sums().min() > 1 - 1e-5


def test_a_lonely_point_beside_two_million_equal_ones():
    """Its row sum, 1, is less than the rounding of the largest."""
    features = torch.zeros(2_200_000, 1)
    features[0] = 100
    K = Lattice.symmetric(features)
    assert_rounding(K.row_sums()[0], torch.tensor(1.0))
