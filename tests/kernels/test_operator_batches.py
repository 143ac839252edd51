"""Batches of images, of inputs, and of both."""

import pytest
import torch
from helpers import KINDS, assert_rounding, cases, lattice, normal, points

from fwcrf.kernels import Exact

UNBATCHED = cases(batched=False, form=("plain", "chain"))
BATCHED = cases(batched=True)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [(c, torch.float64) for c in BATCHED] + [(c, torch.float32) for c in BATCHED if c.form == "model"],
    ids=str,
)
def test_batch_is_a_loop_over_images(case, dtype):
    K, x = case.operator(dtype), case.x(dtype)
    alone = list(case.images(dtype))
    assert len(alone) == len(x) > 1
    assert_rounding(K(x), torch.stack([k(xi) for k, xi in zip(alone, x, strict=True)]))
    assert_rounding(K.to_dense(), torch.stack([k.to_dense() for k in alone]))
    assert_rounding(K.row_sums(), torch.stack([k.row_sums() for k in alone]))
    assert_rounding(K.diagonal(), torch.stack([k.diagonal() for k in alone]), scale=1.0)


@pytest.mark.parametrize("lead", [(1,), (2, 3)], ids=str)
@pytest.mark.parametrize("case", UNBATCHED, ids=str)
def test_one_operator_on_a_batch_of_inputs(case, lead):
    K = case.operator(torch.float64)
    x = normal(*lead, K.n, 4)
    flat = x.view(-1, K.n, 4)
    expected = torch.stack([K(xi) for xi in flat]).view(x.shape)
    assert_rounding(K(x), expected)


@pytest.mark.parametrize("lead", [(), (1,), ("images",), (4, "images"), (4, 1), (4, 2, "images")], ids=str)
@pytest.mark.parametrize("case", cases(batched=True, form=("plain", "model", "chain")), ids=str)
def test_batched_operator_broadcasts_over_inputs(case, lead):
    K = case.operator(torch.float64)
    x = normal(*(K.batch_shape[0] if size == "images" else size for size in lead), K.n, 2)
    assert_rounding(K(x), K.to_dense() @ x, times=4)


BUILDERS = {
    "exact": Exact,
    "lattice-native": lattice(engine="native").build,
    "lattice-torch": lattice(engine="torch").build,
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
@pytest.mark.parametrize(
    ("images", "inputs"),
    [((1,), (3,)), ((2, 1), (2, 3)), ((2, 1), (3,)), ((2, 3), (3,)), ((2, 3), (2, 1)), ((1, 1), (2, 3))],
    ids=str,
)
def test_batches_broadcast_as_in_torch(build, images, inputs):
    K = build(points(*images, 9, 2))
    x = normal(*inputs, 9, 2)
    assert_rounding(K(x), K.to_dense() @ x, times=4)


@pytest.mark.parametrize("case", cases(batched=True, form="plain"), ids=str)
def test_batch_that_does_not_fit_names_both_shapes(case):
    K = case.operator(torch.float64)
    x = normal(K.batch_shape[0] + 3, K.n, 2)
    with pytest.raises(ValueError) as error:
        K(x)
    assert str(tuple(x.shape)) in str(error.value)
    assert str(K.batch_shape[0]) in str(error.value)


@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (0, 0)], ids=str)
@pytest.mark.parametrize("case", KINDS, ids=str)
def test_nothing_in_nothing_out(case, shape):
    K = case.operator(torch.float64)
    batch, channels = shape
    assert K(torch.empty(batch, K.n, channels, dtype=torch.float64)).shape == (batch, K.n, channels)
