"""P of a graph against its matrix: values, derivatives, batches, engines."""

import pytest
import torch
from graph_models import BATCHED, EDGES, POTENTIALS, L, M, N, model
from helpers import DTYPES, assert_rounding, covering, in_process, normal

from fwcrf.graphs import Full, Potts, SparseMRF, Tables, grid
from fwcrf.torch_ops import edges_torch
from fwcrf.torch_ops.adjacency import adjacency

every_kind = pytest.mark.parametrize("kind", POTENTIALS)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def applied(matrix, x):
    return (matrix @ x.flatten(-2).unsqueeze(-1)).squeeze(-1).unflatten(-1, x.shape[-2:])


@covering(kind=list(POTENTIALS), labels=[1, 2, 3, 5, 8, 16, 17, 21, 33, 70, 150], dtype=DTYPES)
def test_one_pass_equals_the_matrix(kind, dtype, labels):
    mrf = model(kind, dtype, labels=labels)
    P, x, u = mrf.energy().pairwise, normal(N, labels, dtype=dtype, seed=9), mrf.unary
    matrix = P.to_dense()
    assert_rounding(matrix, matrix.mT)
    assert_rounding(P(x), applied(matrix, x), times=8)
    assert_rounding(P.plus(x, u), applied(matrix, x) + u, times=8)


@every_kind
def test_matrix_has_the_tables_of_the_edges(kind):
    mrf = model(kind)
    expected = torch.zeros(N, L, N, L, dtype=torch.float64)
    for (i, j), table in zip(EDGES.tolist(), mrf.tables(), strict=True):
        expected[i, :, j] += table
        expected[j, :, i] += table.mT
    assert_rounding(mrf.energy().pairwise.to_dense(), expected.view(N * L, N * L))


@every_kind
def test_row_sums_bound_those_of_the_matrix(kind):
    P = model(kind).energy().pairwise
    exact = P.to_dense().abs().sum(-1).view(N, L)
    assert (P.absolute_row_sums(L) >= exact - 1e-12).all()
    simple = SparseMRF(normal(N, L), EDGES[:5], POTENTIALS[kind](5, L, torch.float64)).energy().pairwise
    exact = simple.to_dense().abs().sum(-1).view(N, L)
    assert_rounding(simple.absolute_row_sums(L), exact)


@pytest.mark.parametrize("kind", BATCHED)
def test_batches_of_potentials(kind):
    unary = normal(2, N, L)
    mrf = SparseMRF(unary, EDGES, BATCHED[kind]())
    P, x = mrf.energy().pairwise, normal(2, N, L, seed=5)
    assert P.to_dense().shape == (2, N * L, N * L)
    assert_rounding(P(x), applied(P.to_dense(), x))
    assert_rounding(P(x[0]), applied(P.to_dense(), x[0].expand(2, N, L)))
    assert_rounding(P.plus(x, unary), applied(P.to_dense(), x) + unary)


@every_kind
def test_batches_of_x(kind):
    mrf = model(kind)
    P, x = mrf.energy().pairwise, normal(2, 3, N, L, seed=5)
    assert_rounding(P(x), applied(P.to_dense(), x))
    assert_rounding(P.plus(x, mrf.unary), applied(P.to_dense(), x) + mrf.unary)


def learned(kind):
    """Every tensor that the energy depends on, and P x + u as a function of them."""
    unary, x = normal(4, 2), normal(4, 2, seed=1)
    edges = torch.tensor([[0, 1], [2, 1], [2, 3], [1, 0]])
    potential = {
        "one weight": ((normal(1, seed=2).squeeze(),), Potts),
        "weights": ((normal(4, seed=2),), Potts),
        "matrix": ((normal(2, 2, seed=3), normal(4, seed=2)), lambda a, w: Full(a + a.mT, w)),
        "asymmetric": ((normal(2, 2, seed=3), normal(4, seed=2)), Full),
        "batch": ((normal(2, 4, 2, 2, seed=2),), Tables),
        "tables": ((normal(4, 2, 2, seed=2),), Tables),
    }[kind]
    inputs = [t.requires_grad_() for t in (x, unary, *potential[0])]

    def gradient(x, unary, *given):
        u = unary.expand(2, 4, 2) if kind == "batch" else unary
        return SparseMRF(u, edges, potential[1](*given)).energy().grad(x)

    return gradient, tuple(inputs)


@pytest.mark.parametrize("kind", ["one weight", "weights", "matrix", "asymmetric", "tables", "batch"])
def test_derivatives_of_both_orders(kind):
    gradient, inputs = learned(kind)
    assert torch.autograd.gradcheck(gradient, inputs)
    # A cube, so that second derivatives in a single argument are not 0.
    assert torch.autograd.gradgradcheck(lambda *a: gradient(*a).pow(3), inputs)


@pytest.mark.parametrize("kind", ["weights", "matrix", "asymmetric", "tables"])
def test_functional_transforms(kind):
    gradient, inputs = learned(kind)
    inputs = tuple(t.detach() for t in inputs)
    last = len(inputs) - 1

    def value(*a):
        return gradient(*a).pow(3).sum()

    for argument in (0, last):
        given = [i.clone().requires_grad_() for i in inputs]
        (expected,) = torch.autograd.grad(value(*given), given[argument])
        assert_rounding(torch.func.grad(value, argnums=argument)(*inputs), expected, times=4)
    several = torch.stack([inputs[-1], 2 * inputs[-1], -inputs[-1]])
    answer = torch.func.vmap(lambda p: gradient(*inputs[:-1], p))(several)
    assert_rounding(answer, torch.stack([gradient(*inputs[:-1], p) for p in several]))
    several = torch.stack([inputs[0], 2 * inputs[0], -inputs[0]], 1)
    answer = torch.func.vmap(torch.func.grad(lambda x: value(x, *inputs[1:])), in_dims=1)(several)
    expected = torch.stack([torch.func.grad(lambda x: value(x, *inputs[1:]))(x) for x in several.unbind(1)])
    assert_rounding(answer, expected, times=4)


def arguments(dtype):
    graph = adjacency(N, EDGES)
    x, u = normal(2, N, L, dtype=dtype), normal(2, N, L, dtype=dtype, seed=1)
    even = normal(L, L, dtype=dtype, seed=2)
    even = (even + even.mT)[None]
    odd = (even.triu() - even.triu().mT).contiguous()
    weight, tables = normal(1, M, dtype=dtype, seed=3), normal(2, M, L, L, dtype=dtype, seed=4)
    g = torch.ops.fwcrf
    return {
        "plain": (g.edge_sum, (x, None, weight, None, False, -1.0, *graph.arrays, True)),
        "potts": (g.edge_sum, (x, u, weight.expand(2, M), None, True, 1.0, *graph.arrays, True)),
        "uniform": (g.edge_sum, (x, u, weight[:, :1], None, True, 1.0, *graph.arrays, True)),
        "matrix": (g.edge_sum, (x, u, weight, even, False, 1.0, *graph.arrays, True)),
        "odd": (g.edge_sum, (x, None, weight, odd, False, -1.0, *graph.arrays, True)),
        "inner": (g.edge_inner, (x, u, -1.0, graph.edges)),
        "tables": (g.table_sum, (x, u, tables, *graph.arrays, True)),
        "outer": (g.edge_outer, (x, u, graph.edges)),
    }


CALLS = [*arguments(torch.float64)]


@pytest.mark.parametrize("call", CALLS)
@both_dtypes
def test_native_and_torch_engines_agree(call, dtype):
    op, given = arguments(dtype)[call]
    plain = {
        "edge_sum": lambda x, u, w, A, potts, turned, *rest: edges_torch.edge_sum(
            x, u, w, A, potts, turned, rest[3]
        ),
        "edge_inner": edges_torch.edge_inner,
        "table_sum": lambda x, u, t, *rest: edges_torch.table_sum(x, u, t, rest[3]),
        "edge_outer": edges_torch.edge_outer,
    }[op.default.name().split("::")[1]]
    assert_rounding(op(*given), plain(*given), times=4)


@pytest.mark.parametrize("call", CALLS)
def test_operators_as_torch_sees_them(call):
    op, given = arguments(torch.float64)[call]
    torch.library.opcheck(op.default, given, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("kind", ["weights", "asymmetric matrix", "tables"])
def test_compiled(kind):
    mrf = model(kind)
    E = mrf.energy()
    compiled = torch.compile(lambda x: E.grad(x).square().sum(), backend="aot_eager", fullgraph=True)
    x = normal(N, L, seed=7).requires_grad_()
    y = x.detach().clone().requires_grad_()
    compiled(x).backward()
    E.grad(y).square().sum().backward()
    assert_rounding(x.grad, y.grad, times=4)


def test_threads_do_not_change_the_answer(num_threads):
    edges, weights = grid((60, 70), 8)
    x = normal(60 * 70, 5, dtype=torch.float32)
    for pairwise in (weights, normal(len(edges), 5, 5, dtype=torch.float32)):
        P = SparseMRF(x, edges, pairwise).energy().pairwise
        answers = []
        for threads in (1, 2, 3):
            num_threads(threads)
            answers.append(P(x))
        assert torch.equal(answers[0], answers[1]) and torch.equal(answers[0], answers[2])


def generic_answers():
    found = {}
    for kind in POTENTIALS:
        mrf = model(kind, torch.float32, labels=21)
        found[kind] = mrf.energy().grad(normal(N, 21, dtype=torch.float32, seed=3)).tolist()
    return found


def test_other_instruction_sets_agree():
    from helpers import environment

    with environment(FWCRF_ISA="generic"):
        generic = in_process(generic_answers)
    for kind, answer in generic_answers().items():
        assert_rounding(torch.tensor(answer), torch.tensor(generic[kind]), times=8)


def test_what_does_not_fit():
    P = model("tables").energy().pairwise
    with pytest.raises(ValueError, match=r"x has shape \(6, 4\); expected .* 3 labels"):
        P(normal(6, 4))
    with pytest.raises(ValueError, match=r"one row for each of the 6 points"):
        P(normal(5, 3))
    for kind in POTENTIALS:
        with pytest.raises(ValueError, match="values that are NaN or infinite"):
            model(kind).energy().pairwise(normal(N, L).fill_(torch.nan))


def test_vmap_over_edges_is_refused():
    op, given = arguments(torch.float64)["inner"]
    with pytest.raises(ValueError, match="not of edges"):
        torch.func.vmap(lambda e: op(*given[:3], e))(torch.stack([given[3], given[3]]))


def test_large_edges_take_no_copy_of_the_matrix():
    """A matrix that the edges share is never expanded to tables."""
    n = 200_000
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)], -1)
    mrf = SparseMRF(torch.zeros(n, 64), edges, Full(normal(64, 64, dtype=torch.float32)))
    y = mrf.energy().pairwise(torch.full((n, 64), 1 / 64))
    assert y.shape == (n, 64)
