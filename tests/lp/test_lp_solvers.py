"""The solvers of the relaxation: what each converges to, and what all of them promise."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lp_graphs import Graph, linear_program, random_graph, truth
from torch.testing import assert_close

import fwcrf
from fwcrf.energy import linear
from fwcrf.lp import EntropicRelaxation, FreeEnergy, LocalConsistency, LocalPolytope, appearance_probabilities
from fwcrf.lp.highs import Program
from fwcrf.lp.relaxation import Consistency
from fwcrf.stepsizes import Adaptive, Harmonic, LineSearch, SegmentSearch

RELAXED = [name for name in fwcrf.solvers.names(graphs=True) if name.startswith("lp-")]
# On points of the relaxation, which solvers over trees do not have.
NAMES = [name for name in RELAXED if name not in ("lp-trws", "lp-bundle")]
ENTROPIC = ["lp-bethe", "lp-trw", "lp-rho"]


def test_names():
    assert ["lp-meshi", *ENTROPIC, "lp-trws", "lp-bundle"] == RELAXED
    assert not {*RELAXED} & {*fwcrf.solvers.names()}


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([(4, 4), (7, 3), (12, 2)]),
    forest=st.booleans(),
    forbidden=st.booleans(),
)
def test_no_bound_is_above_and_no_energy_below_the_best_labelling(seed, size, forest, forbidden):
    graph = random_graph(seed, *size, forest=forest, forbidden=forbidden)
    least = truth(graph).least
    program = linear_program(graph)
    for name in RELAXED:
        found = graph.mrf.solve(name, 5)
        assert float(found.bound) <= least
        assert float(found.energy) >= least - 1e-9
        if name in ENTROPIC:
            assert float(found.bound) == pytest.approx(program, abs=1e-6)
        else:
            assert float(found.bound) <= program + 1e-7


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_stays_feasible_and_never_rises(name, forbidden):
    graph = random_graph(3, 6, 3, forbidden=forbidden)
    seen = []
    found = graph.mrf.solve(name, 12, trace=True, callback=lambda k, x: seen.append(x))
    for x in seen:
        assert torch.isfinite(x).all() and (x >= 0).all()
        assert_close(x.sum(-1), torch.ones(6, dtype=torch.float64))
        assert (x[graph.unary == torch.inf] == 0).all()
    values = [float(record.value) for record in found.trace]
    assert all(after <= before + 1e-9 for before, after in pairwise(values))
    assert values[-1] < values[0]
    assert all(float(record.gap) >= -1e-7 for record in found.trace)
    assert all(float(record.rounded) >= truth(graph).least - 1e-9 for record in found.trace)
    assert_close(found.edge_probabilities.sum((-2, -1)), torch.ones(len(graph.edges), dtype=torch.float64))
    if name in ENTROPIC:
        assert_close(
            found.edge_probabilities.sum(-1), found.probabilities[graph.edges[:, 0]], atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("forbidden", [False, True])
@pytest.mark.parametrize("name", ["lp-bethe", "lp-trw"])
@pytest.mark.parametrize("seed", range(4))
def test_marginals_of_forests_are_exact(name, seed, forbidden):
    graph = random_graph(seed, 7, 3, forest=True, forbidden=forbidden)
    expected = truth(graph)
    found = graph.mrf.solve(name, 5, tol=1e-10)
    assert found.converged
    assert_close(found.probabilities, expected.nodes, atol=1e-6, rtol=0)
    assert_close(found.edge_probabilities, expected.pairs, atol=1e-6, rtol=0)
    assert float(found.energy) == pytest.approx(expected.least)
    assert float(found.bound) == pytest.approx(expected.least)
    if name == "lp-trw":
        assert float(found.log_partition_bound) == pytest.approx(expected.log_partition)


def test_marginals_of_forests_at_another_temperature():
    unary, edges, tables = random_graph(5, 6, 3, forest=True)
    found = fwcrf.SparseMRF(unary, edges, tables).solve("lp-bethe", 2, weight=0.5)
    assert_close(found.probabilities, truth(Graph(2 * unary, edges, 2 * tables)).nodes, atol=1e-6, rtol=0)


def test_frank_wolfe_over_the_polytope_comes_to_the_same_marginals():
    """With a trace of smoothing the entropy is no longer the oracle's: vertices of the polytope are mixed."""
    graph = random_graph(2, 4, 2, forest=True)
    expected = truth(graph).nodes
    far, near = (
        (graph.mrf.solve("lp-rho", steps, rho=1.0, eta=1e-6).probabilities - expected).abs().max()
        for steps in (3, 150)
    )
    assert near < 0.02 and near < far


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), steps=st.integers(0, 15))
def test_the_tree_reweighted_bound_is_above_the_log_partition_function(seed, steps):
    graph = random_graph(seed, 6, 3)
    found = graph.mrf.solve("lp-trw", steps)
    assert float(found.log_partition_bound) >= truth(graph).log_partition
    assert graph.mrf.solve("lp-trw", 1, weight=0.5).log_partition_bound is None
    assert graph.mrf.solve("lp-bethe", 1).log_partition_bound is None


def test_the_bound_on_the_log_partition_function_gets_better_and_has_the_constant_in_it():
    graph = random_graph(4, 6, 2)
    early, late = (float(graph.mrf.solve("lp-trw", steps).log_partition_bound) for steps in (2, 60))
    assert truth(graph).log_partition <= late < early
    moved = fwcrf.SparseMRF(*graph, constant=2.5).solve("lp-trw", 60)
    assert float(moved.log_partition_bound) == pytest.approx(late - 2.5)
    assert float(moved.bound) == pytest.approx(float(graph.mrf.solve("lp-trw", 0).bound) + 2.5)


@pytest.mark.parametrize("eta", [0.0, 0.05])
def test_the_gradient_of_a_free_energy_is_that_of_its_value(eta):
    graph = random_graph(6, 5, 3, forbidden=True)
    E = graph.relaxation
    f = FreeEnergy(E, 0.7, appearance_probabilities(5, graph.edges), eta)
    x = E.independent(torch.softmax(-2 * graph.unary, -1)).requires_grad_()
    (expected,) = torch.autograd.grad(f.value(x).sum(), x)
    allowed = E.unary < torch.inf
    assert bool((x[allowed] < 0.05).any() and (x[allowed] > 0.05).any())
    assert_close(f.grad(x.detach())[allowed], expected[allowed])
    assert (f.grad(x.detach())[~allowed] == torch.inf).all()


@pytest.mark.parametrize("eta", [0.0, 0.05])
def test_the_slope_along_a_segment_is_the_gradient_along_it(eta):
    """To vertices, to points inside, and for a batch with a step of each image."""
    graph = random_graph(6, 5, 3, forbidden=True)
    E = graph.relaxation
    f = FreeEnergy(E, 0.7, appearance_probabilities(5, graph.edges), eta)
    x = E.independent(torch.softmax(-2 * graph.unary, -1))
    vertex = torch.nn.functional.one_hot(E.rows(graph.unary.argmin(-1)), E.unary.shape[-1]).to(x)
    inside = E.uniform()
    for p in (vertex, inside, 0.5 * (vertex + inside)):
        slope = f.slope_along(x, p)
        for a in (0.0, 1e-7, 0.3, 0.97, 1 - 1e-9):
            assert_close(slope(x.new_tensor(a)), linear(f.grad(torch.lerp(x, p, a)), p - x))
    starts, ends = torch.stack([x, vertex]), torch.stack([vertex, inside])
    a = x.new_tensor([0.2, 0.9])
    together = f.slope_along(starts, ends)(a)
    for k in range(2):
        assert_close(together[k], f.slope_along(starts[k], ends[k])(a[k]))


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_reweighted_free_energy_is_convex_and_smoothing_tends_to_it(seed):
    graph = random_graph(seed, 6, 3)
    E = graph.relaxation
    rho = appearance_probabilities(6, graph.edges)
    f = FreeEnergy(E, 1.0, rho)
    generator = torch.Generator().manual_seed(seed)
    polytope = LocalPolytope(E)
    points = [
        0.1 * E.uniform() + 0.9 * polytope.argmin(torch.where(E.unary < torch.inf, noise.double(), torch.inf))
        for noise in torch.randn(4, *E.unary.shape, generator=generator)
    ]
    for a, b in pairwise(points):
        assert f.value(0.5 * (a + b)) <= 0.5 * (f.value(a) + f.value(b)) + 1e-9
    smoothed = [
        float((FreeEnergy(E, 1.0, rho, eta).value(points[0]) - f.value(points[0])).abs())
        for eta in (0.1, 0.01)
    ]
    assert smoothed[1] < smoothed[0]
    assert float(FreeEnergy(E, 1.0, rho, 1e-9).value(points[0])) == pytest.approx(float(f.value(points[0])))


def test_adaptive_steps_for_the_smoothed_entropy():
    graph = random_graph(7, 5, 2)
    found = graph.mrf.solve("lp-rho", 20, eta=0.1, step=Adaptive(), trace=True)
    values = [float(record.value) for record in found.trace]
    assert all(after <= before + 1e-9 for before, after in pairwise(values))


@pytest.mark.parametrize("forbidden", [False, True])
def test_the_penalty_tends_to_the_linear_program(forbidden):
    """The least of E_LP + w/2 |A x|^2 is below the program's, and the bound too; both come close to it."""
    graph = random_graph(8, 5, 2, forbidden=forbidden)
    program = linear_program(graph)
    E = graph.relaxation
    _, y = Program(E, E.unary).solve(E.unary)
    below = []
    for weight in (2.0, 20.0):
        found = graph.mrf.solve("lp-meshi", 2000, weight=weight)
        value = float(fwcrf.Energy(Consistency(E, weight), E.unary).value(found.point))
        # No point of the simplices has less than that, by duality, and those of the polytope have no penalty.
        assert program - float(y.square().sum()) / (2 * weight) - 1e-6 <= value <= program + 0.01
        assert float(found.bound) <= program + 1e-9
        below.append(program - value)
    assert below[1] < below[0]
    assert float(found.bound) > program - 0.3


def test_a_penalty_is_an_energy_like_any_other():
    """Consistency is A'A, and block Frank-Wolfe ends where projected gradient ends."""
    graph = random_graph(9, 4, 2)
    E = graph.relaxation
    P = Consistency(E, 3.0)
    x = E.uniform() + 0.1
    assert_close((P.to_dense() @ x.flatten()).unflatten(0, x.shape), P(x))
    assert float((x * P(x)).sum()) == pytest.approx(3 * float(E.disagreement(x).square().sum()))
    f = fwcrf.Energy(P, E.unary)
    other = fwcrf.minimize(f, fwcrf.solvers.get("fista", step=0.02), num_steps=2000).probabilities
    found = fwcrf.minimize(E, LocalConsistency(3.0), num_steps=2000).probabilities
    assert float(f.value(found)) == pytest.approx(float(f.value(other)), abs=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_batch_equals_loop_and_dtype_is_kept(name):
    unary, edges, tables = random_graph(10, 5, 3)
    batch = torch.stack([unary, -unary]).float()
    found = fwcrf.SparseMRF(batch, edges, tables.float()).solve(name, 4)
    assert found.probabilities.dtype == found.edge_probabilities.dtype == torch.float32
    assert found.bound.dtype == torch.float64
    assert found.labels.shape == (2, 5)
    for i in range(2):
        alone = fwcrf.SparseMRF(batch[i], edges, tables.float()).solve(name, 4)
        assert_close(found.probabilities[i], alone.probabilities, atol=1e-5, rtol=0)
        assert_close(found.bound[i], alone.bound)


@pytest.mark.parametrize("name", NAMES)
def test_a_start_of_ones_own_and_no_steps(name):
    graph = random_graph(11, 5, 3)
    x0 = torch.softmax(graph.unary, -1)
    found = graph.mrf.solve(name, 0, rounding="nearest", x0=x0)
    assert_close(found.probabilities, x0)
    assert torch.equal(found.labels, x0.argmax(-1))
    assert not found.converged


@pytest.mark.parametrize("name", NAMES)
def test_graphs_without_edges(name):
    unary = torch.tensor([[1.0, 0.0, 3.0], [0.0, torch.inf, 2.0]]).double()
    found = fwcrf.SparseMRF(unary, torch.zeros(0, 2, dtype=torch.int64), 1.0).solve(name, 3)
    assert found.labels.tolist() == [1, 0]
    assert float(found.bound) == pytest.approx(0.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_descent_never_ends_above_the_most_likely_labels(name, seed):
    mrf = random_graph(seed, 10, 3).mrf
    for steps in (0, 3):
        nearest, bcd = (float(mrf.solve(name, steps, rounding).energy) for rounding in ("nearest", "bcd"))
        assert bcd <= nearest + 1e-9


def test_rounding_by_descent_and_restarts():
    graph = random_graph(12, 10, 2)
    least = truth(graph).least
    nearest, bcd, restarted = (
        float(graph.mrf.solve("lp-meshi", 3, rounding, restarts=restarts).energy)
        for rounding, restarts in (("nearest", 0), ("bcd", 0), ("bcd", 20))
    )
    assert least - 1e-9 <= restarted <= bcd <= nearest + 1e-9


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda g: g.mrf.solve("lp-meshi", 1, weight=0.0), ValueError, "weight=0.0; expected a positive"),
        (lambda g: g.mrf.solve("lp-trw", 1, weight=-1.0), ValueError, "weight=-1.0"),
        (lambda g: g.mrf.solve("lp-rho", 1, eta=1.5), ValueError, "eta=1.5; expected a number from 0 to 1"),
        (lambda g: g.mrf.solve("lp-rho", 1, rho=-1.0), ValueError, "rho=-1.0; expected a positive number"),
        (lambda g: g.mrf.solve("lp-rho", 1, rho=torch.ones(3)), ValueError, "rho has 3 entries for"),
        (
            lambda g: g.mrf.solve("lp-trw", 1, eta=0.1),
            ValueError,
            "no setting 'eta'; expected weight, step, oracle",
        ),
        (lambda g: g.mrf.solve("lp-trw", 1, step=LineSearch()), TypeError, "SegmentSearch"),
        (lambda g: g.mrf.solve("lp-trw", 1, step=Adaptive()), TypeError, "SegmentSearch"),
        (lambda g: g.mrf.solve("lp-trw", 1, x0=torch.ones(2)), ValueError, r"x0 has shape \(2,\)"),
        (lambda g: fwcrf.minimize(g.mrf.energy(), "lp-trw", num_steps=1), TypeError, "SparseMRF"),
        (lambda g: fwcrf.minimize(g.mrf.energy(), "lp-meshi", num_steps=1), TypeError, "SparseMRF"),
        (lambda g: fwcrf.solvers.get("lp-simplex"), ValueError, "lp-meshi, lp-bethe, lp-trw, lp-rho"),
    ],
)
def test_bad_settings_are_named(call, kind, message):
    with pytest.raises(kind, match=message):
        call(random_graph(13, 5, 3))


def test_solvers_are_settings():
    assert fwcrf.solvers.get("lp-meshi", weight=3.0) == LocalConsistency(3.0)
    assert fwcrf.solvers.get("lp-bethe") == EntropicRelaxation(1.0, 1.0, 0.0, SegmentSearch())
    assert fwcrf.solvers.get("lp-rho", step=Harmonic()).stepsize == Harmonic()
    graph = random_graph(14, 5, 2)
    by_name = graph.mrf.solve("lp-trw", 3, weight=0.5).probabilities
    assert torch.equal(by_name, graph.mrf.solve(fwcrf.solvers.get("lp-trw", weight=0.5), 3).probabilities)
