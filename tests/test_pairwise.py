import numpy as np
import pytest
import torch
from helpers import assert_rounding, points
from torch.testing import assert_close

import fwcrf
from fwcrf.compatibility import Full
from fwcrf.kernels import Bilateral, Exact, Lattice, Separable, Spatial
from fwcrf.pairwise import Blocks, Matrix, dense, of_image

L = 3
DTYPE = torch.float64


def features(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)


OPERATORS = {
    "exact": [Exact(features(12, 3))],
    "lattice": [Lattice.build(features(12, 3)).with_unit_diagonal().normalized("symmetric")],
    "two kernels": [Exact(features(12, 2)), Separable.build((3, 4), 1.5, torch.zeros((), dtype=DTYPE))],
    "batch": [Exact(features(2, 12, 3)), Lattice.build(features(2, 12, 2))],
}
COMPATS = {"potts": 1.5, "diagonal": [1.0, -2.0, 0.5], "full": features(L, L)}
WEIGHTS = {"number": 0.7, "per label": [0.2, 1.0, 0.5]}


@pytest.fixture(params=OPERATORS.values(), ids=OPERATORS)
def operators(request):
    return request.param


@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_acts_as_its_dense_matrix_and_is_symmetric(operators, compat, weight):
    P = dense(operators, L, weights=[weight] * len(operators), compat=compat)
    matrix = P.to_dense()
    x = features(*matrix.shape[:-2], 12, L, seed=1)
    assert_close(P(x).flatten(-2), (matrix @ x.flatten(-2).unsqueeze(-1)).squeeze(-1))
    assert_close(matrix, matrix.mT)


def test_dense_matrix_is_the_sum_of_kronecker_products():
    K1, K2 = features(6, 2), features(6, 3)
    P = dense([Exact(K1), Exact(K2)], L, weights=[2.0, 0.5], compat=1.0)
    potts = 1 - torch.eye(L, dtype=DTYPE)
    eye = torch.eye(6, dtype=DTYPE)
    expected = torch.kron(2.0 * (Exact(K1).to_dense() - eye) + 0.5 * (Exact(K2).to_dense() - eye), potts)
    assert_close(P.to_dense(), expected)


def test_diagonal_blocks_are_zero_without_self_edges(operators):
    for self_edges in (False, True):
        matrix = dense(operators, L, compat=features(L, L), self_edges=self_edges).to_dense()
        blocks = matrix.unflatten(-1, (12, L)).unflatten(-3, (12, L)).diagonal(dim1=-4, dim2=-2)
        assert (blocks.abs().max() < 1e-12) == (not self_edges)


def test_closed_under_sums_and_multiples():
    A, B = (dense([Exact(features(5, 2, seed=s))], L) for s in (0, 1))
    x = features(5, L, seed=2)
    assert_close((A + 3 * B)(x), A(x) + 3 * B(x))
    assert_close((A + B * 3).to_dense(), A.to_dense() + 3 * B.to_dense())


def test_a_matrix_is_symmetrised_and_acts_on_batches():
    values = features(2, 4 * L, 4 * L)
    P = fwcrf.pairwise.Matrix(values, L)
    x = features(2, 4, L, seed=1)
    expected = 0.5 * ((values + values.mT) @ x.flatten(-2).unsqueeze(-1)).squeeze(-1).view(2, 4, L)
    assert_close(P(x), expected)
    assert_close(P.to_dense(), 0.5 * (values + values.mT))


def test_parts_within_nodes_act_as_their_matrices():
    weight, M = features(2, 4).abs(), features(L, L)
    x = features(2, 4, L, seed=1)
    blocks = Blocks(weight, Full(M + M.mT), L)
    for P in (blocks, fwcrf.pairwise.Diagonal(features(2, 4, L, seed=2))):
        assert_close(P(x).flatten(-2), (P.to_dense() @ x.flatten(-2).unsqueeze(-1)).squeeze(-1))


def test_of_image_takes_kernels_with_their_weights():
    image = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    kernels = [Bilateral(xy=4, color=60, weight=2.0, method="exact"), Spatial(xy=2, weight=0.5)]
    P = of_image(kernels, image, L)
    expected = dense([k.operator(image) for k in kernels], L, weights=[2.0, 0.5])
    x = torch.rand(42, L, generator=torch.Generator().manual_seed(0))
    assert_close(P(x), expected(x))


def test_differentiable_in_x_weights_and_compatibility():
    weight = torch.rand(L, dtype=DTYPE, requires_grad=True)
    compat = features(L, L).requires_grad_()
    x = features(8, L, seed=3).requires_grad_()

    def apply(x, weight, compat):
        return dense([Exact(features(8, 2))], L, weights=[weight], compat=compat)(x)

    torch.autograd.gradcheck(apply, (x, weight, compat))
    torch.autograd.gradgradcheck(apply, (x, weight, compat))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dense([], L), "operators is empty"),
        (lambda: dense([Exact(features(4, 2))], 0), "num_labels=0"),
        (lambda: dense([Exact(features(4, 2))], L, weights=[1.0, 2.0]), "2 weights for 1 operators"),
        (lambda: dense([Exact(features(4, 2))], L, weights=[[1.0, 2.0]]), "one per label"),
        (lambda: dense([Exact(features(4, 2))], L, weights=[float("inf")]), "finite"),
        (lambda: dense([Exact(features(4, 2))], L)(features(4, 2)), r"expected \(\*batch, 4, 3\)"),
        (lambda: fwcrf.pairwise.Matrix(features(4, 5), 2), r"\(4, 5\); expected"),
        (lambda: fwcrf.pairwise.Matrix(features(6, 6), 3)(features(3, 3)), r"expected \(\*batch, 2, 3\)"),
        (lambda: dense([Exact(features(4, 2))], L)(features(5, L)), r"expected \(\*batch, 4, channels\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_label_has_no_pairwise_energy():
    P = dense([Exact(features(4, 2))], 1)
    assert_close(P(torch.ones(4, 1, dtype=DTYPE)), torch.zeros(4, 1, dtype=DTYPE))


def test_public_names():
    assert fwcrf.pairwise.dense is dense


@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
def test_self_edges_are_the_part_that_was_left_out(operators, compat):
    P, whole = (dense(operators, L, compat=compat, self_edges=kept) for kept in (False, True))
    edges = P.self_edges()
    assert len(edges) == len(operators)
    left_out = sum(Blocks(k, M, L).to_dense() for k, M in edges)
    expected = whole.to_dense() - P.to_dense()
    assert_close(left_out.expand(expected.shape), expected)
    assert all((e.weight == 0).all() for e in whole.self_edges())
    for edge, scaled in zip(edges, (-3.0 * P).self_edges(), strict=True):
        assert scaled.compat is edge.compat
        assert_close(scaled.weight, -3 * edge.weight)


@pytest.mark.parametrize("compat", COMPATS.values(), ids=COMPATS)
def test_absolute_row_sums_count_every_kernel(operators, compat):
    P = dense(operators, L, compat=compat)
    terms = [dense([K], L, compat=compat) for K in operators]
    exact = sum(term.to_dense().abs().sum(-1) for term in terms)
    assert_close(P.absolute_row_sums(L).flatten(-2).expand(exact.shape), exact)


def test_absolute_row_sums_of_a_matrix():
    matrix = features(2, 5 * L, 5 * L)
    P = Matrix(matrix + matrix.mT, L)
    assert_close(P.absolute_row_sums(L), P.to_dense().abs().sum(-1).view(2, 5, L))


@pytest.mark.parametrize("default", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("weight", "compat"), [(0.3, 0.7), (np.float64(0.3), 1), ([0.3, 0.1], 0.7), (0.3, [0.1, 0.7])], ids=str
)
def test_numbers_keep_their_digits_in_float64(weight, compat, default):
    """A weight of 0.3 is not the float32 next to it, whatever torch's default dtype is."""
    K = Exact(points(5, 2))
    exact = [torch.as_tensor(v, dtype=torch.float64) for v in (weight, compat)]
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        found = dense([K], 2, weights=[weight], compat=compat).to_dense()
    finally:
        torch.set_default_dtype(before)
    assert found.dtype == torch.float64
    assert_rounding(found, dense([K], 2, weights=[exact[0]], compat=exact[1]).to_dense())
