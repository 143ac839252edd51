"""Vectors of another batch than the operator's, and rows with nothing to divide by."""

import pytest
import torch
from helpers import normal, points

from fwcrf.kernels import Exact, Lattice

BUILDERS = {"exact": Exact, "lattice": Lattice.build}
every_builder = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


@every_builder
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
@pytest.mark.parametrize("vector_batch", [(), (2,)], ids=str)
def test_vectors_broadcast(build, batch, vector_batch):
    K, v, x = build(points(*batch, 9, 2)), normal(*vector_batch, 9).abs() + 1, normal(9, 3)
    dense = K.to_dense()
    torch.testing.assert_close(K.shifted(v)(x), dense @ x + v.unsqueeze(-1) * x)
    torch.testing.assert_close(K.scaled(v)(x), v.unsqueeze(-1) * (dense @ (v.unsqueeze(-1) * x)))


@every_builder
def test_a_point_without_neighbours_cannot_be_normalized_without_itself(build):
    features = torch.tensor([[0.0, 0.0], [0.1, 0.0], [50.0, 0.0]])
    K = build(features).with_unit_diagonal().without_self_edges()
    with pytest.raises(ValueError, match="Normalize before removing self-edges"):
        K.normalized("symmetric")
