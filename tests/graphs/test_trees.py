"""lp-trws: bounds that never rise above the best labelling, for every kind of edge costs."""

from itertools import pairwise

import pytest
import torch
from graph_models import EDGES, POTENTIALS, M, N, best, model, random_model
from helpers import normal, uniform

import fwcrf
from fwcrf.graphs import Full, Potts, SparseMRF, Tables, TruncatedLinear, TruncatedQuadratic, grid
from fwcrf.graphs.native import native_models
from fwcrf.lp.highs import Program
from fwcrf.lp.relaxation import relax


def program(mrf):
    """The optimum of the linear program over the local polytope."""
    R = relax(mrf.energy().unary, mrf.edges, mrf.tables())
    x, _ = Program(R, R.unary).solve(R.unary)
    return float((torch.where(x == 0, 0.0, R.unary * x)).sum()) + mrf.constant


@pytest.mark.parametrize("kind", POTENTIALS)
def test_bounds_and_labels_of_small_models(kind):
    for seed in range(4):
        mrf = model(kind, seed=seed)
        found = mrf.solve("lp-trws", 200)
        least = best(mrf)
        assert float(found.bound) <= least
        assert float(found.energy) >= least - 1e-9
        assert float(found.bound) <= program(mrf) + 1e-7
        if bool(found.proven):
            assert float(found.energy) == pytest.approx(least, abs=1e-8)
        bounds = found.bounds[0].tolist()
        assert all(after >= before - 1e-9 for before, after in pairwise(bounds))


@pytest.mark.parametrize("seed", range(20))
def test_tables_with_forbidden_labels(seed):
    mrf = random_model(seed)
    found = mrf.solve("lp-trws", 100)
    assert float(found.bound) <= best(mrf) <= float(found.energy) + 1e-9
    if mrf.num_edges < 6:  # few cycles: the relaxation is often tight
        assert float(found.energy) <= float(mrf.solve("l2fw").energy) + 1e-9


@pytest.mark.parametrize("labels", [1, 2, 3, 5, 8, 17])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_fast_messages_equal_those_of_tables(labels, sign):
    """Potts, linear and quadratic costs take O(K) per message; the same costs as tables take O(K^2)."""
    edges, _ = grid((3, 4))
    m = len(edges)
    unary = 3 * normal(12, labels, seed=labels)
    unary[0, 1:] = torch.inf
    weight = uniform(m, seed=3)
    weight[2] = 0.0
    weight = sign * weight
    for costs in (
        Potts(weight),
        TruncatedLinear(weight, 2.5),
        TruncatedLinear(weight),
        TruncatedQuadratic(weight, 7.0),
        TruncatedQuadratic(weight),
        Full(normal(labels, labels, seed=5), weight),
    ):
        mrf = SparseMRF(unary, edges, costs)
        tables = SparseMRF(unary, edges, Tables(mrf.tables()))
        fast, slow = (each.solve("lp-trws", 7, tolerance=0.0) for each in (mrf, tables))
        both = min(len(fast.bounds[0]), len(slow.bounds[0]))  # one may close its gap to the last bit
        torch.testing.assert_close(fast.bounds[0][:both], slow.bounds[0][:both], rtol=0, atol=1e-9)
        assert float(fast.energy) == pytest.approx(float(slow.energy), abs=1e-9)


def test_a_chain_takes_one_step_and_a_forest_few():
    chain, forest = (
        torch.tensor([[0, 1], [2, 1], [2, 3], [4, 5]]),
        torch.tensor([[0, 1], [2, 1], [1, 3], [4, 5]]),
    )
    for seed in range(5):
        for edges, steps in ((chain, 1), (forest, 30)):
            mrf = SparseMRF(normal(6, 3, seed=seed), edges, normal(4, 3, 3, seed=seed + 1))
            found = mrf.solve("lp-trws", steps, "nearest")
            assert bool(found.proven)
            assert float(found.energy) == pytest.approx(best(mrf), abs=1e-10)


def test_the_bound_of_an_attractive_binary_model_is_the_least_energy():
    """Submodular models with two labels have a tight relaxation."""
    mrf = SparseMRF(normal(N, 2, seed=1), EDGES, Potts(uniform(M, seed=2)))
    found = mrf.solve("lp-trws", 500)
    assert float(found.bound) == pytest.approx(best(mrf), abs=1e-6)
    assert bool(found.proven)


def test_batches_and_constants():
    unary = normal(2, N, 3)
    mrf = SparseMRF(unary, EDGES, Potts(normal(2, M, seed=1).abs()), constant=2.5)
    found = mrf.solve("lp-trws", 30)
    assert found.bound.shape == found.proven.shape == (2,) and len(found.bounds) == 2
    for k in range(2):
        one = SparseMRF(unary[k], EDGES, Potts(normal(2, M, seed=1).abs()[k]), constant=2.5)
        assert float(found.bound[k]) == float(one.solve("lp-trws", 30).bound)


def test_refusals():
    mrf = model("weights")
    with pytest.raises(TypeError, match="trace with lp-trws"):
        mrf.solve("lp-trws", trace=True)
    with pytest.raises(ValueError, match=r"tolerance=-1\.0; expected"):
        mrf.solve("lp-trws", tolerance=-1.0)
    with pytest.raises(ValueError, match="num_steps=0; expected"):
        mrf.solve("lp-trws", 0)
    with pytest.raises(TypeError, match=r"expected SparseMRF\(...\).solve\('lp-trws'\)"):
        fwcrf.minimize(mrf.energy(), "lp-trws", num_steps=1)


@pytest.mark.parametrize("shape", ["potts", "linear", "quadratic", "matrix", "tables"])
def test_the_number_of_threads_changes_nothing(shape):
    """Levels wide enough for two threads, at least."""
    labels = {"matrix": 12, "tables": 12}.get(shape, 128)
    edges, _ = grid((48, 48))
    m = len(edges)
    costs = {
        "potts": lambda: Potts(normal(m, seed=1)),
        "linear": lambda: TruncatedLinear(uniform(m, seed=1), 3.0),
        "quadratic": lambda: TruncatedQuadratic(uniform(m, seed=1), 5.0),
        "matrix": lambda: Full(normal(labels, labels, seed=1), normal(m, seed=2)),
        "tables": lambda: Tables(normal(m, labels, labels, seed=1)),
    }[shape]()
    (native,) = native_models(SparseMRF(normal(48 * 48, labels), edges, costs))

    def run(threads):
        labels_ = torch.zeros(48 * 48, dtype=torch.int64)
        sent, bounds = torch.zeros(m, labels).double(), torch.empty(4).double()
        return *native.trws(sent, 4, 1e9, 0.0, labels_, bounds, threads), sent, labels_, bounds

    alone, together = run(1), run(3)
    assert alone[:4] == together[:4]
    assert all(torch.equal(a, b) for a, b in zip(alone[4:], together[4:], strict=True))
