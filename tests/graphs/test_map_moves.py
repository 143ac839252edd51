"""The native MAP methods against enumeration: cuts, elimination, expansions, balls, crossover, sweeps."""

import math

import pytest
import torch
from graph_models import EDGES, POTENTIALS, best, by_hand, labellings, model, random_model
from helpers import normal, uniform

import fwcrf
from fwcrf.graphs import Full, Potts, SparseMRF, TruncatedLinear, TruncatedQuadratic, grid
from fwcrf.graphs.native import native_models
from fwcrf.torch_ops.simplex import softmax

LONG = 1e9


def native(mrf):
    return native_models(mrf)[0]


def start(mrf):
    return mrf.unary.argmin(-1)


def cases():
    yield from (model(kind, seed=seed) for kind in POTENTIALS for seed in range(2))
    yield from (random_model(seed) for seed in range(12))


def test_energies():
    for mrf in cases():
        labels = torch.randint(
            0, mrf.num_labels, (mrf.num_nodes,), generator=torch.Generator().manual_seed(0)
        )
        labels = torch.where(mrf.unary[torch.arange(mrf.num_nodes), labels] == torch.inf, start(mrf), labels)
        assert native(mrf).energy(labels) == pytest.approx(by_hand(mrf, labels.tolist()), abs=1e-9)


def test_elimination_is_exact():
    for mrf in cases():
        labels = start(mrf)
        value = native(mrf).eliminate(1e6, 1e9, LONG, labels)
        assert value == pytest.approx(best(mrf), abs=1e-9)
        assert float(mrf.value(labels)) == pytest.approx(best(mrf), abs=1e-9)


def test_elimination_of_a_wide_graph_is_refused_without_a_change():
    mrf = SparseMRF(normal(7, 3), torch.combinations(torch.arange(7)), normal(21, 3, 3, seed=1))
    labels = start(mrf)
    assert native(mrf).eliminate(3.0**5, 1e9, LONG, labels) is None
    assert native(mrf).eliminate(1e6, 3.0**5, LONG, labels) is None
    assert torch.equal(labels, start(mrf))
    assert native(mrf).eliminate(3.0**6, 1e9, LONG, labels) == pytest.approx(best(mrf), abs=1e-9)


@pytest.mark.parametrize("shape", [(2, 7), (3, 4)])
def test_elimination_of_grids_with_labels_of_their_own(shape):
    """Nodes with one to three labels: tables whose axes differ in length."""
    edges, _ = grid(shape)
    n = math.prod(shape)
    for seed in range(5):
        unary = normal(n, 3, seed=seed)
        unary[torch.arange(n) % 3 == 0, 1] = torch.inf
        unary[torch.arange(n) % 4 == 1, 2:] = torch.inf
        unary[5, 1:] = torch.inf
        mrf = SparseMRF(unary, edges, normal(len(edges), 3, 3, seed=seed + 9))
        labels = start(mrf)
        allowed = labellings(mrf) if n < 12 else None
        value = native(mrf).eliminate(1e6, 1e9, LONG, labels)
        assert value == pytest.approx(float(mrf.value(labels)), abs=1e-9)
        if allowed is not None:
            assert value == pytest.approx(float(mrf.value(allowed).min()), abs=1e-9)
        assert value >= float(mrf.solve("lp-trws", 100).bound)
        assert value <= float(mrf.solve("l2fw", 20, restarts=20).energy) + 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_cuts_are_exact_where_labels_can_be_exchanged(seed):
    """Submodular tables after an exchange of the labels of some nodes, which the method has to find."""
    generator = torch.Generator().manual_seed(seed)
    n, edges = 7, torch.combinations(torch.arange(7))
    edges = edges[torch.rand(len(edges), generator=generator) < 0.6]
    tables = torch.randn(len(edges), 2, 2, generator=generator).double()
    above = (tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]).clamp(min=0)
    tables[:, 0, 1] += above * 1.5
    turned = torch.rand(n, generator=generator) < 0.5
    tables[turned[edges[:, 0]]] = tables[turned[edges[:, 0]]].flip(-2)
    tables[turned[edges[:, 1]]] = tables[turned[edges[:, 1]]].flip(-1)
    unary = 2 * torch.randn(n, 2, generator=generator).double()
    unary[3, seed % 2] = torch.inf
    mrf = SparseMRF(unary, edges, tables)
    labels = start(mrf)
    value = native(mrf).cut(LONG, labels)
    assert value == pytest.approx(best(mrf), abs=1e-9)
    assert float(mrf.value(labels)) == pytest.approx(best(mrf), abs=1e-9)


def test_models_that_are_no_cuts():
    triangle = [[0, 1], [1, 2], [0, 2]]
    frustrated = SparseMRF(normal(3, 2), triangle, -1.0)
    assert native(frustrated).cut(LONG, start(frustrated)) is None
    assert native(model("one weight")).cut(LONG, start(model("one weight"))) is None  # three labels


@pytest.mark.parametrize(
    "costs",
    [
        lambda m, L: Potts(uniform(m, seed=2)),
        lambda m, L: TruncatedLinear(0.5, 2.0),
        lambda m, L: TruncatedQuadratic(0.3, 4.0),
        lambda m, L: Full(normal(L, L, seed=4)),
        lambda m, L: normal(m, L, L, seed=6),
    ],
)
def test_moves_never_raise_the_energy_and_name_labels_that_are_allowed(costs):
    edges, _ = grid((5, 6))
    for seed in range(3):
        unary = normal(30, 4, seed=seed)
        unary[uniform(30, 4, seed=seed) < 0.1] = torch.inf
        unary[:, 0] = unary[:, 0].clamp(max=5.0)
        mrf = SparseMRF(unary, edges, costs(len(edges), 4))
        m = native(mrf)
        exact = start(mrf)
        m.eliminate(4.0**6, 1e9, LONG, exact)
        least = float(mrf.value(exact))
        for move in (
            lambda labels, m=m, seed=seed: m.balls(5, 12, 256.0, seed, LONG, labels),
            lambda labels, m=m, seed=seed: m.kick(2, seed, LONG, labels),
            lambda labels, m=m, seed=seed: m.expand(3, LONG, labels),
            lambda labels, m=m, exact=exact: m.take_better_parts(exact, labels),
        ):
            labels = start(mrf)
            before = m.energy(labels)
            move(labels)
            assert least - 1e-9 <= m.energy(labels) <= before + 1e-9
            assert torch.isfinite(mrf.value(labels))
        # One ball over the whole graph is the exact method, and so is a crossover with the best labels.
        labels = start(mrf)
        gained = m.balls(1, 30, 4.0**6, seed, LONG, labels)
        assert float(mrf.value(labels)) == pytest.approx(least, abs=1e-9)
        assert gained == pytest.approx(least - m.energy(start(mrf)), abs=1e-9)


def test_an_expansion_is_the_best_one():
    """Potts: no set of nodes that take one label together lowers the energy afterwards."""
    for seed in range(4):
        mrf = SparseMRF(normal(6, 3, seed=seed), EDGES, Potts(uniform(8, seed=seed + 1)))
        labels = start(mrf)
        native(mrf).expand(10, LONG, labels)
        sets = labellings(SparseMRF(normal(6, 2), EDGES, 1.0)).bool()
        for alpha in range(3):
            moved = torch.where(sets, alpha, labels)
            assert float(mrf.value(moved).min()) >= float(mrf.value(labels)) - 1e-9


def test_crossover_takes_each_part_by_itself():
    mrf = SparseMRF(torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]).double(), [[0, 1]], 0.0)
    ours, other = torch.tensor([1, 0, 0]), torch.tensor([0, 1, 1])
    assert native(mrf).take_better_parts(other, ours) == -2.0
    assert ours.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", POTENTIALS)
def test_a_sweep_visits_one_node_after_the_other(kind):
    mrf = model(kind)
    P, u, weight, step = mrf.energy().pairwise, mrf.unary, 0.7, 0.6
    expected = softmax(u, -1.0).clone()
    x = expected.clone()
    for _ in range(3):
        for i in range(mrf.num_nodes):
            p = torch.softmax(-(P(expected) + u)[i] / weight, -1)
            expected[i] += step * (p - expected[i])
    weights = torch.full((3,), weight, dtype=torch.float64)
    native(mrf).sweep(weights, torch.full((3,), step, dtype=torch.float64), LONG, x)
    torch.testing.assert_close(x, expected, rtol=0, atol=1e-12)


def test_the_time_is_kept():
    edges, _ = grid((60, 60))
    mrf = SparseMRF(normal(3600, 2), edges, Potts(normal(len(edges), seed=1)))
    m, labels = native(mrf), start(mrf)
    m.balls(10**9, 160, 4096.0, 0, 0.05, labels)
    m.kick(10**9, 0, 0.05, labels)
    bounds, sent = torch.empty(10**6, dtype=torch.float64), torch.zeros(len(edges), 2, dtype=torch.float64)
    steps, *_ = m.trws(sent, 10**6, 0.05, -1.0, labels, bounds, 1)
    assert 1 <= steps < 10**6


def test_wrong_arguments_are_refused():
    m = native(model("weights"))
    with pytest.raises(ValueError, match="one label per node"):
        m.kick(1, 0, LONG, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="labels"):
        m.balls(1, 3, 10.0, 0, LONG, torch.full((6,), 3))
    with pytest.raises(ValueError, match="messages"):
        m.trws(torch.zeros(1, 3).double(), 1, LONG, 0.0, torch.zeros(6).long(), torch.zeros(1).double(), 1)
    with pytest.raises(ValueError, match="a label that is not forbidden"):
        fwcrf._core.GraphModel(
            torch.full((1, 2), torch.inf).double(), 0, torch.ones(1).double(), None, None, 0.0,
            torch.zeros(2).long(), torch.zeros(0).int(), torch.zeros(0).int(),
        )  # fmt: skip
