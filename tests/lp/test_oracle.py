"""Linear programs over the local polytope: dynamic programming, HiGHS, and the bounds of both."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lp_graphs import linear_program, random_graph, truth
from torch.testing import assert_close

from fwcrf.lp import LocalPolytope, relax
from fwcrf.lp.highs import Program
from fwcrf.lp.traversal import traverse


def assert_feasible(E, x, atol=1e-6):
    assert (x >= 0).all()
    assert_close(x.sum(-1), torch.ones_like(x[..., 0]), atol=atol, rtol=0)
    assert E.disagreement(x).abs().sum() <= atol
    assert (x[E.unary == torch.inf] == 0).all()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 9),
    labels=st.integers(1, 4),
    forest=st.booleans(),
    forbidden=st.booleans(),
)
def test_oracle_equals_the_program_written_out(seed, n, labels, forest, forbidden):
    graph = random_graph(seed, n, labels, forest=forest or n < 3, forbidden=forbidden)
    E = graph.relaxation
    x, least = LocalPolytope(E).solve(E.unary)
    assert_feasible(E, x)
    assert float(E.value(x)) == pytest.approx(linear_program(graph), abs=1e-7)
    assert float(least) == pytest.approx(float(E.value(x)), abs=1e-7)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), labels=st.integers(2, 4), forbidden=st.booleans())
def test_forests_by_dynamic_programming_and_by_highs(seed, n, labels, forbidden):
    graph = random_graph(seed, n, labels, forest=True, forbidden=forbidden)
    E = graph.relaxation
    assert traverse(n, graph.edges).is_forest
    x, least = LocalPolytope(E).solve(E.unary)
    other, y = Program(E, E.unary).solve(E.unary)
    assert_feasible(E, x, atol=0)
    assert_feasible(E, other)
    assert float(E.value(x)) == pytest.approx(float(E.value(other)), abs=1e-7)
    assert float(E.bound(E.unary, y)) == pytest.approx(float(least), abs=1e-7)
    if labels**n <= 4096:
        assert float(E.value(x)) == pytest.approx(truth(graph).least, abs=1e-9)
        assert float(least) <= truth(graph).least


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_no_messages_give_a_bound_that_is_too_high(seed, scale):
    graph = random_graph(seed, 6, 3, forbidden=True, scale=scale)
    E = graph.relaxation
    y = scale * torch.randn(len(graph.edges), 2, 3, generator=torch.Generator().manual_seed(seed)).double()
    for messages in (y, 1e6 * y, torch.zeros_like(y)):
        assert float(E.bound(E.unary, messages)) <= truth(graph).least
    assert float(LocalPolytope(E).solve(E.unary).least) <= truth(graph).least


@pytest.mark.parametrize("forest", [True, False])
def test_batch_equals_loop(forest):
    unary, edges, tables = random_graph(1, 6, 3, forest=forest)
    batch = torch.stack([unary, -unary, 2 * unary])
    batch[1, 0, 0] = torch.inf
    E = relax(batch, edges, tables)
    x, least = LocalPolytope(E).solve(E.unary)
    for i in range(3):
        alone = relax(batch[i], edges, tables)
        expected = LocalPolytope(alone).solve(alone.unary)
        assert_close(least[i], expected.least)
        assert_close(E.value(x)[i], alone.value(expected.x))


def test_a_long_chain_and_many_levels():
    n = 300
    edges = torch.stack([torch.arange(n - 1), torch.arange(1, n)], -1)
    tables = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).expand(n - 1, 2, 2).double()
    unary = torch.zeros(n, 2).double()
    unary[0, 0], unary[-1, 1] = torch.inf, 3.0
    E = relax(unary, edges, tables)
    x, least = LocalPolytope(E).solve(E.unary)
    assert float(E.value(x)) == 1.0
    assert float(least) == pytest.approx(1.0, abs=1e-9)


def test_without_scipy_the_remedy_is_said(monkeypatch):
    E = random_graph(0, 4, 2).relaxation
    assert not traverse(4, E.edges).is_forest
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ModuleNotFoundError, match=r"fwcrf\[graphs\]"):
        LocalPolytope(E).solve(E.unary)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda u, e, t: (u, e.T, t), r"edges is torch.int64 of shape \(2, "),
        (lambda u, e, t: (u, e, t[:-1]), "one table over 3 labels"),
        (lambda u, e, t: (u, e, t / 0), "not finite"),
    ],
)
def test_bad_graphs_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        relax(*change(*random_graph(0, 5, 3)))
