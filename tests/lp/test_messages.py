"""Linear programs of large graphs by TRW-S: labellings and bounds against enumeration and the program."""

import sys
from itertools import pairwise

import pytest
import torch
from helpers import normal, uniform
from hypothesis import given, settings
from hypothesis import strategies as st
from lp_graphs import linear_program, random_graph, truth
from torch.testing import assert_close

from fwcrf.graphs import Full, Potts, SparseMRF, grid
from fwcrf.lp import LocalPolytope

ENTROPIC = ["lp-bethe", "lp-trw", "lp-rho"]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(3, 8),
    labels=st.integers(1, 3),
    forbidden=st.booleans(),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
)
def test_a_labelling_and_a_bound(seed, n, labels, forbidden, scale):
    graph = random_graph(seed, n, labels, forbidden=forbidden, scale=scale)
    E = graph.relaxation
    x, least = LocalPolytope(E, "messages").solve(E.unary)
    assert (x.sum(-1) == 1).all() and (x.amax(-1) == 1).all() and E.disagreement(x).abs().sum() == 0
    assert (x[E.unary == torch.inf] == 0).all()
    best, size = truth(graph).least, 1e-9 * scale
    assert float(E.value(x)) >= best - size
    assert float(least) <= best
    if scale == 1.0:  # HiGHS has absolute tolerances
        assert float(least) <= linear_program(graph) + 1e-7


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("name", ENTROPIC)
def test_points_are_feasible_and_never_rise(name, forbidden):
    for seed in range(3):
        graph = random_graph(seed, 7, 3, forbidden=forbidden)
        known = truth(graph)
        found = graph.mrf.solve(name, 12, oracle="messages", trace=True)
        values = [float(record.value) for record in found.trace]
        assert values[-1] < values[0] and all(b <= a + 1e-9 for a, b in pairwise(values))
        assert found.relaxation.disagreement(found.point).abs().max() < 1e-12
        assert (found.probabilities[graph.unary == torch.inf] == 0).all()
        assert float(found.bound) <= known.least <= float(found.energy) + 1e-9
        assert "linear programs by messages" in found.engine
        if name == "lp-trw":
            assert float(found.log_partition_bound) >= known.log_partition


def test_it_is_the_program_where_the_relaxation_is_tight():
    """Potts with weights above 0, two labels: all programs of the steps are tight or nearly so."""
    edges, _ = grid((4, 4))
    mrf = SparseMRF(normal(16, 2), edges, Potts(0.5 * uniform(len(edges))))
    exact, near = (mrf.solve("lp-trw", 60, oracle=oracle) for oracle in ("program", "messages"))
    assert float(near.bound) == pytest.approx(float(exact.bound), abs=1e-6)
    assert_close(near.probabilities, exact.probabilities, atol=0.06, rtol=0)
    assert float(near.log_partition_bound) == pytest.approx(float(exact.log_partition_bound), abs=1.0)


def test_a_batch_is_its_images():
    unary, edges, tables = random_graph(4, 6, 3)
    batch = torch.stack([unary, -unary])
    both = SparseMRF(batch, edges, tables).solve("lp-trw", 6, oracle="messages")
    for k in range(2):
        one = SparseMRF(batch[k], edges, tables).solve("lp-trw", 6, oracle="messages")
        assert_close(both.probabilities[k], one.probabilities)
        assert float(both.bound[k]) == pytest.approx(float(one.bound))


def test_large_graphs_take_messages_by_themselves(monkeypatch):
    """Without HiGHS: it is not even installed."""
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    edges, _ = grid((30, 30))
    mrf = SparseMRF(normal(900, 4), edges, Potts(0.5))  # 31,440 variables
    for name in ENTROPIC:
        found = mrf.solve(name, 3)
        assert "linear programs by messages" in found.engine
        assert float(found.energy) * 1.2 < float(found.bound) <= float(found.energy)
    small = SparseMRF(normal(9, 4), grid((3, 3))[0], Potts(0.5))
    with pytest.raises(ModuleNotFoundError, match=r"fwcrf\[graphs\]"):
        small.solve("lp-bethe", 1)
    assert float(small.solve("lp-bethe", 3, oracle="messages").bound) > -20


def test_costs_of_float32_are_summed_as_energies_are():
    """A weight times an entry of a matrix is rounded in float32, but not in the energy of labels."""
    for seed in range(20):
        graph = random_graph(seed, 6, 2)
        matrix = normal(2, 2, dtype=torch.float32, seed=seed)
        weights = normal(len(graph.edges), dtype=torch.float32, seed=seed + 1)
        mrf = SparseMRF(graph.unary.float(), graph.edges, Full(matrix, weights))
        every = torch.cartesian_prod(*[torch.arange(2)] * 6)
        least = float(mrf.value(every).min())
        for name in ("lp-bethe", "lp-meshi"):
            assert float(mrf.solve(name, 2).bound) <= least + 1e-12


def test_refusals():
    mrf = random_graph(0, 5, 3).mrf
    with pytest.raises(ValueError, match="oracle='highs'; expected 'program', 'messages'"):
        mrf.solve("lp-trw", oracle="highs")
    with pytest.raises(ValueError, match=r"tol=0\.1 with linear programs by messages"):
        mrf.solve("lp-trw", 5, oracle="messages", tol=0.1)
