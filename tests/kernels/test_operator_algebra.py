"""What every operator must be: a linear map that agrees with its matrix, transpose, diagonal and sums."""

import pytest
import torch
from helpers import CASES, FORMS, assert_rounding, cases

# What a form does to numbers does not depend on their precision: all in double, the longest in single.
SINGLE = cases(form="chain") + cases(form="model", base=("exact", "separable-3d", "lattice-5d-native"))
EVERY = [(case, torch.float64) for case in CASES] + [(case, torch.float32) for case in SINGLE]


def name(value):
    return str(value).removeprefix("torch.")


every_case = pytest.mark.parametrize(("case", "dtype"), EVERY, ids=name)


@every_case
def test_matrix_and_sums(case, dtype):
    K, x, y = case.operator(dtype), case.x(dtype), case.x(dtype, seed=4)
    matrix = K.to_dense()
    assert matrix.shape == (*K.batch_shape, K.n, K.n)
    assert_rounding(K(x), matrix @ x, times=4)
    assert_rounding(K(2 * x - 3 * y), 2 * K(x) - 3 * K(y), times=4)
    assert K.diagonal().shape == (*K.batch_shape, K.n)
    # Zero entries are what is left of entries about one.
    scale = max(1.0, float(matrix.abs().max()))
    assert_rounding(K.diagonal(), matrix.diagonal(dim1=-2, dim2=-1), scale=scale)
    assert K.row_sums().shape == (*K.batch_shape, K.n)
    assert_rounding(K.row_sums(), matrix.sum(-1), times=4)


@every_case
def test_form_is_what_it_does_to_the_matrix(case, dtype):
    expected = FORMS[case.form].dense(case.plain(dtype).to_dense(), *case.vectors(dtype))
    assert_rounding(case.operator(dtype).to_dense(), expected, times=4)


@every_case
def test_transpose(case, dtype):
    K, x, y = case.operator(dtype), case.x(dtype), case.x(dtype, seed=4)
    matrix = K.to_dense()
    assert_rounding(K.T.to_dense(), matrix.mT)
    assert_rounding(K.T.T.to_dense(), matrix)
    assert torch.equal(K.T.diagonal(), K.diagonal())
    left, right = (K(x) * y).sum((-2, -1)), (x * K.T(y)).sum((-2, -1))
    assert_rounding(left, right, scale=K(x).norm() * y.norm())
    if case.symmetric:
        assert_rounding(matrix, matrix.mT)
