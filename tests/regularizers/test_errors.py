"""What cannot be is refused, and the message says what to do."""

import math

import pytest
import torch

from fwcrf.regularizers import (
    BinaryEntropy,
    BlockQuadratic,
    Entropy,
    Mixed,
    SquaredL2,
    SquaredLp,
    Tsallis,
    block_quadratic,
)

WEIGHTED = [Entropy, SquaredL2, BinaryEntropy, *(lambda w, k=k: k(1.5, w) for k in (Tsallis, SquaredLp))]


@pytest.mark.parametrize("make", [*WEIGHTED, lambda w: Mixed(l2=w), lambda w: Mixed(entropy=w)])
@pytest.mark.parametrize("weight", [0, -1.0, math.nan, math.inf])
def test_weights_must_be_positive(make, weight):
    with pytest.raises(ValueError, match=r"expected a positive number"):
        make(weight)
    with pytest.raises(ValueError, match=r"1 of 3 entries .* not a positive number"):
        make(torch.tensor([[1.0], [weight], [2.0]]))


@pytest.mark.parametrize("make", WEIGHTED)
def test_weights_are_per_node(make):
    with pytest.raises(ValueError, match=r"shape \(3,\).*unsqueeze"):
        make(torch.ones(3))
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        make(torch.ones(2, 3))
    with pytest.raises(TypeError, match=r"torch.int64"):
        make(torch.tensor(1))


def test_the_name_of_the_weight_is_said():
    with pytest.raises(ValueError, match=r"Mixed's entropy=-2"):
        Mixed(1.0, -2)
    with pytest.raises(ValueError, match=r"Tsallis' weight=0"):
        Tsallis(1.5, 0)


@pytest.mark.parametrize("alpha", [0.9, 4.1, math.nan])
def test_alpha(alpha):
    with pytest.raises(ValueError, match=r"alpha=.*from 1 \(Entropy\)"):
        Tsallis(alpha)


@pytest.mark.parametrize("p", [1, 0.5, 5, math.inf, math.nan])
def test_p(p):
    with pytest.raises(ValueError, match=r"p=.*above 1, up to 4"):
        SquaredLp(p)


@pytest.mark.parametrize("make", [BlockQuadratic, block_quadratic])
def test_matrices(make):
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        make(torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"symmetric"):
        make(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"symmetric"):
        make(torch.full((2, 2), math.nan))
    with pytest.raises(ValueError, match=r"eigenvalue -1 .*Add 1 to its diagonal"):
        make(torch.ones(3, 3) - torch.eye(3))
    with pytest.raises(ValueError, match=r"BlockQuadratic's weight=-1"):
        make(torch.eye(3), weight=-1)
    with pytest.raises(ValueError, match=r"BlockQuadratic's entropy=-1"):
        make(torch.eye(3), entropy=-1)


def test_tolerance():
    with pytest.raises(ValueError, match=r"tolerance=0"):
        BlockQuadratic(torch.eye(3), tolerance=0)


def test_the_remedy_for_a_matrix_works():
    m = torch.ones(3, 3) - torch.eye(3)
    BlockQuadratic(m + torch.eye(3))
