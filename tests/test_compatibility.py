import pytest
import torch
from torch.testing import assert_close

from fwcrf.compatibility import Full, Potts, compatibility

L = 4
GENERATOR = torch.Generator().manual_seed(0)
VALUES = {
    "potts": torch.tensor(1.7, dtype=torch.float64),
    "diagonal": torch.randn(L, generator=GENERATOR, dtype=torch.float64),
    "full": torch.randn(L, L, generator=GENERATOR, dtype=torch.float64),
}
WEIGHTS = {
    "one": torch.tensor(0.6, dtype=torch.float64),
    "per label": torch.rand(L, generator=GENERATOR, dtype=torch.float64),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_weighted_applies_its_matrix(value, weight):
    c = compatibility(value, L)
    M = c.matrix(L)
    W = torch.diag(weight.expand(L))
    expected = (W @ M + M @ W) / 2
    y = torch.randn(2, 5, L, generator=GENERATOR, dtype=torch.float64)
    assert_close(c.weighted(weight).matrix(L), expected)
    assert_close(c.weighted(weight).apply(y), y @ expected)
    assert_close(c.apply(y), y @ M)


def test_potts_is_the_penalty_for_differing():
    assert_close(compatibility(2.0, 3).matrix(3), 2.0 * (1 - torch.eye(3, dtype=torch.float64)))


def test_full_is_symmetrised():
    M = torch.tensor([[0.0, 1.0], [3.0, 0.0]])
    assert_close(compatibility(M, 2).matrix(2), torch.tensor([[0.0, 2.0], [2.0, 0.0]]))


def test_integers_and_lists_are_read():
    assert isinstance(compatibility(1, 3), Potts)
    assert isinstance(compatibility([[0, 1], [1, 0]], 2), Full)


@pytest.mark.parametrize("value", [[1.0, 2.0], torch.zeros(3, 2), torch.zeros(2, 3, 3)])
def test_wrong_shape_names_both(value):
    with pytest.raises(ValueError, match=r"expected a number \(Potts\), 3 numbers"):
        compatibility(value, 3)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        compatibility(float("nan"), 3)


def test_per_label_weight_of_a_per_label_potts_is_refused():
    with pytest.raises(ValueError, match="per label"):
        Potts(torch.ones(3)).weighted(torch.ones(3))
