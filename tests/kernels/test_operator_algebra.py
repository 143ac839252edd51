"""What every operator must be: a linear map that agrees with its matrix, transpose, diagonal and sums."""

import pytest
import torch
from helpers import CASES, FORMS, assert_rounding, cases

# What a form does to numbers does not depend on their precision: all in double, some in single.
SINGLE = cases(form=("model", "chain"))
EVERY = [(case, torch.float64) for case in CASES] + [(case, torch.float32) for case in SINGLE]


def name(value):
    return str(value).removeprefix("torch.")


every_case = pytest.mark.parametrize(("case", "dtype"), EVERY, ids=name)


@every_case
def test_linear(case, dtype):
    K, x, y = case.operator(dtype), case.x(dtype), case.x(dtype, seed=4)
    assert_rounding(K(2 * x - 3 * y), 2 * K(x) - 3 * K(y), times=4)


@every_case
def test_matrix(case, dtype):
    K, x = case.operator(dtype), case.x(dtype)
    assert K.to_dense().shape == (*K.batch_shape, K.n, K.n)
    assert_rounding(K(x), K.to_dense() @ x, times=4)


@every_case
def test_form_is_what_it_does_to_the_matrix(case, dtype):
    expected = FORMS[case.form].dense(case.plain(dtype).to_dense(), *case.vectors(dtype))
    assert_rounding(case.operator(dtype).to_dense(), expected, times=4)


@every_case
def test_transpose(case, dtype):
    K = case.operator(dtype)
    assert_rounding(K.T.to_dense(), K.to_dense().mT)
    assert_rounding(K.T.T.to_dense(), K.to_dense())
    assert torch.equal(K.T.diagonal(), K.diagonal())


@every_case
def test_adjoint(case, dtype):
    K, x, y = case.operator(dtype), case.x(dtype), case.x(dtype, seed=4)
    left, right = (K(x) * y).sum((-2, -1)), (x * K.T(y)).sum((-2, -1))
    assert_rounding(left, right, scale=K(x).norm() * y.norm())


@pytest.mark.parametrize(("case", "dtype"), [(c, t) for c, t in EVERY if c.symmetric], ids=name)
def test_symmetric(case, dtype):
    matrix = case.operator(dtype).to_dense()
    assert_rounding(matrix, matrix.mT)


@every_case
def test_diagonal(case, dtype):
    K = case.operator(dtype)
    assert K.diagonal().shape == (*K.batch_shape, K.n)
    matrix = K.to_dense()
    # Zero entries are what is left of entries about one.
    scale = max(1.0, float(matrix.abs().max()))
    assert_rounding(K.diagonal(), matrix.diagonal(dim1=-2, dim2=-1), scale=scale)


@every_case
def test_row_sums(case, dtype):
    K = case.operator(dtype)
    assert K.row_sums().shape == (*K.batch_shape, K.n)
    assert_rounding(K.row_sums(), K.to_dense().sum(-1), times=4)
