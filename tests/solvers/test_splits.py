"""The ways to write E + r as f + g: their sum, that f and g are what they should be, and their oracles."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers import normal, points
from problems import ORDERED, PROBLEMS, L, N, feasible, kernel_energy, matrix_energy, start
from scipy.optimize import minimize as scipy_minimize
from torch.testing import assert_close

import fwcrf
from fwcrf.compatibility import Full, Potts
from fwcrf.energy import inner
from fwcrf.kernels import Exact
from fwcrf.pairwise import Blocks, Diagonal, dense
from fwcrf.regularizers import Entropy, Mixed, Simplex, SquaredL2
from fwcrf.solvers.splits import (
    concave,
    concave_model,
    concave_rest,
    concavity,
    convexified,
    diagonal_dominance,
)

problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def on_simplices(P, n=N):
    """The matrix of P on directions that sum to 0 in every row."""
    centre = torch.kron(torch.eye(n), torch.eye(L) - 1 / L).double()
    return centre @ P.to_dense().double() @ centre


@problem
@pytest.mark.parametrize("r", [Simplex(), Entropy(0.7)], ids=["none", "entropy"])
def test_parts_add_up(problem, r):
    E, x = problem(), feasible(N, L, seed=4)
    f, g = concave(E, r)
    assert_close(f.value(x) + g.value(x), E.value(x) + r.value(x), rtol=1e-6, atol=1e-8)
    f, g = concave_rest(E, Simplex())
    assert_close(f.value(x) + g.value(x), E.value(x))
    f, g = convexified(E, r)
    c = diagonal_dominance(E)
    assert_close(f.value(x) + g.value(x), E.value(x) + r.value(x) - inner(c, x) + inner(x, c * x))


@problem
def test_convexified_energy_is_convex_and_equal_on_labels(problem):
    E = problem()
    f, _ = convexified(E, Simplex())
    assert torch.linalg.eigvalsh(f.pairwise.to_dense())[0] >= -1e-9
    labels = torch.tensor([0, 2, 1, 1, 0, 2])
    assert_close(f.of_labels(labels), E.of_labels(labels))


@problem
def test_absolute_row_sums_bound_those_of_the_matrix(problem):
    E = problem()
    exact = E.pairwise.to_dense().abs().sum(-1).unflatten(-1, (N, L))
    assert (E.pairwise.absolute_row_sums(L) >= exact - 1e-12).all()
    if len(getattr(E.pairwise, "terms", [0])) == 1:
        assert_close(E.pairwise.absolute_row_sums(L), exact)
    assert_close((-2.0 * E.pairwise).absolute_row_sums(L), 2 * E.pairwise.absolute_row_sums(L))


@problem
def test_concave_part_is_concave_and_the_rest_convex(problem):
    E = problem()
    f, g = concave(E, Simplex())
    assert torch.linalg.eigvalsh(on_simplices(f.pairwise))[-1] <= 1e-5
    x, y = feasible(N, L, seed=1), feasible(N, L, seed=2)
    assert g.value(0.5 * (x + y)) <= 0.5 * (g.value(x) + g.value(y)) + 1e-12


def test_the_self_edges_are_those_of_the_kernels():
    operators = [Exact(points(N, 2)).normalized("symmetric"), Exact(points(N, 1, seed=1))]
    P = dense(operators, L, weights=[2.0, 0.5], compat=ORDERED)
    whole = dense(operators, L, weights=[2.0, 0.5], compat=ORDERED, self_edges=True)
    restored = sum(Blocks(k, M, L).to_dense() for k, M in P.self_edges())
    assert_close(P.to_dense() + restored, whole.to_dense())
    assert_close(sum(Blocks(k, M, L).to_dense() for k, M in (3 * P).self_edges()), 3 * restored)
    assert all((k == 0).all() for k, _ in whole.self_edges())


@pytest.mark.parametrize("compat", [1.0, ORDERED], ids=["potts", "ordered"])
def test_a_kernel_with_a_negative_weight_is_not_taken_for_a_concave_one(compat):
    """The self-edges of both kernels together are positive, the self-edges of one kernel are not."""
    E = kernel_energy(5, compat=compat, weights=[2.0, -1.0])
    f, _ = concave(E, Simplex())
    assert torch.linalg.eigvalsh(on_simplices(f.pairwise))[-1] <= 1e-5


def test_matrices_that_are_equal_by_coincidence_are_not_one_matrix():
    operators = [Exact(points(N, 2)), Exact(points(N, 1, seed=1))]
    u = normal(N, L)
    one = fwcrf.Energy(dense(operators, L, compat=Full(ORDERED)), u)
    two = fwcrf.Energy(dense(operators, L, compat=[Full(ORDERED), Full(ORDERED.clone())]), u)
    assert isinstance(concavity(one), Blocks)
    assert isinstance(concavity(two), Diagonal)
    potts = [Potts(torch.tensor(w)) for w in (1.0, 2.0)]  # which are one matrix, times two numbers
    A = concavity(fwcrf.Energy(dense(operators, L, compat=potts), u))
    assert_close(A.weight, torch.full((N, L), 3.0).double())


def test_closed_forms_are_used_where_they_exist():
    assert isinstance(concave(PROBLEMS["potts"](), Simplex())[1], SquaredL2)
    assert isinstance(concave(PROBLEMS["potts"](), Entropy(1.0))[1], Mixed)
    assert isinstance(concavity(PROBLEMS["ordered"]()), Blocks)
    # No self-edges are known, or they would not make g convex: a multiple of the identity.
    for name in ("matrix", "repulsive potts", "any compatibility"):
        A = concavity(PROBLEMS[name]())
        assert isinstance(A, Diagonal)
        assert (A.weight == A.weight[0, 0]).all()


# SLSQP of scipy 1.11 warns of its own rounding errors.
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
@pytest.mark.parametrize("name", ["potts", "ordered", "matrix"])
@pytest.mark.parametrize("r", [Simplex(), Entropy(0.7)], ids=["none", "entropy"])
def test_oracles_are_what_a_general_solver_finds(name, r):
    E = PROBLEMS[name]()
    _, g = concave(E, r)
    c = normal(N, L, seed=8)
    p = g.argmin(c)
    judge = np.stack([reference(lambda q, i=i: row_objective(g, c, q, i), c, i) for i in range(N)])
    assert_close(p, torch.from_numpy(judge), rtol=0, atol=2e-6)


def row_objective(g, c, q, i):
    """<c_i, q> + g at a point whose other rows stay the same."""
    x = torch.full((N, L), 1 / L, dtype=torch.float64)
    x[i] = torch.from_numpy(q)
    return float((c[i] * x[i]).sum() + g.value(x))


def reference(objective, c, i):
    best = None
    for begin in ([1 / L] * L, [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]):
        found = scipy_minimize(
            objective,
            np.array(begin),
            method="SLSQP",
            bounds=[(1e-15, 1)] * L,
            constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        best = found if best is None or found.fun < best.fun else best
    return best.x


def test_the_quadratic_program_of_cccp1_is_solved_to_its_tolerance():
    E = matrix_energy(2, n=4)
    c = normal(4, L, seed=8)
    _, g = concave_rest(E, Simplex(), tol=1e-12, max_steps=5000)
    p = g.argmin(c)

    def objective(q):
        x = torch.from_numpy(q).view(4, L)
        return float((c * x).sum() + g.value(x)), (c + g.grad(x)).flatten().numpy()

    found = scipy_minimize(
        objective,
        np.full(4 * L, 1 / L),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * (4 * L),
        constraints={"type": "eq", "fun": lambda q: q.reshape(4, L).sum(1) - 1},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    assert_close(p.flatten(), torch.from_numpy(found.x), rtol=0, atol=1e-5)
    assert objective(p.flatten().numpy())[0] <= found.fun + 1e-9


@problem
@pytest.mark.parametrize("name", ["cccp-qp1", "cccp-qp2", "cmf1", "cmf2"])
def test_the_concave_convex_procedure_never_raises_its_objective(problem, name):
    if name == "cmf2" and problem in (PROBLEMS["repulsive potts"], PROBLEMS["any compatibility"]):
        # The formula of the paper is concave only for a compatibility that is negative on the simplices.
        f, _ = concave_model(problem(), Entropy(1.0))
        assert torch.linalg.eigvalsh(on_simplices(f.pairwise))[-1] > 0.1
        return
    settings = {"tol": 1e-9, "max_steps": 300} if name == "cccp-qp1" else {}
    trace = fwcrf.minimize(problem(), fwcrf.solvers.get(name, **settings), num_steps=8, trace=True).trace
    values = [record.value.item() for record in trace]
    assert all(b <= a + 1e-8 * (1 + abs(a)) for a, b in pairwise(values))


def test_convergent_mean_field_2_is_mean_field_with_self_edges():
    E, whole = kernel_energy(4), kernel_energy(4, self_edges=True)
    x = fwcrf.minimize(E, "cmf2", num_steps=6).probabilities
    assert_close(x, fwcrf.minimize(whole, "mf", num_steps=6).probabilities)


def test_convergent_mean_field_1_has_the_fixed_points_of_mean_field():
    E = kernel_energy(4)
    x = fwcrf.minimize(E, "cmf1", num_steps=100).probabilities
    assert_close(torch.softmax(-E.grad(x), -1), x, rtol=1e-6, atol=1e-8)


def test_cccp_is_frank_wolfe_where_nothing_is_missing():
    """A model that keeps its self-edges is concave already: full steps to vertices."""
    E = kernel_energy(4, self_edges=True)
    x = fwcrf.minimize(E, "cccp-qp2", num_steps=5).probabilities
    assert_close(x, fwcrf.minimize(E, fwcrf.solvers.get("fw", step=1.0), num_steps=5).probabilities)


def test_convex_frank_wolfe_finds_the_minimum_of_the_relaxation():
    E = kernel_energy(4)
    solution = fwcrf.minimize(E, "convex-fw", num_steps=3000, tol=1e-3)
    f, _ = convexified(E, Simplex())
    value = f.value(solution.probabilities)
    assert solution.converged
    x = start(E)
    for _ in range(1000):
        x = SquaredL2(1.0).argmin(0.1 * f.grad(x) - x)
    assert abs(value - f.value(x)) <= 2e-3 * max(1.0, abs(value))


def test_a_split_without_room_for_a_regularizer_says_so():
    with pytest.raises(ValueError, match="expected Simplex"):
        concave_rest(kernel_energy(1), Entropy(1.0))
    with pytest.raises(ValueError, match=r"expected Simplex\(\) or Entropy"):
        concave(kernel_energy(1), SquaredL2(1.0))
    assert concave_model(kernel_energy(1), SquaredL2(1.0))[1] == SquaredL2(1.0)


# --- the paper's formula ------------------------------------------------------------------------------

LABELS = torch.arange(L, dtype=torch.float64)
DISTANCE = (LABELS[:, None] - LABELS[None]).abs()


def conditionally_negative(seed):
    """-(a Gram matrix), zero on the diagonal after a shift of rows and columns by the same vector."""
    G = normal(L, L, seed=seed)
    G = G @ G.T
    return 0.5 * (G.diagonal()[:, None] + G.diagonal()[None]) - G


COMPATIBILITIES = {
    "potts": 1.0,
    "distance": DISTANCE,
    "truncated": DISTANCE.clamp(max=1.5),
    "random negative": conditionally_negative(3),
    "repulsive": -1.0,
    "random": normal(L, L, seed=2),
    "diagonal": [-1.0, -2.0, 0.5],
}


@pytest.mark.parametrize("weights", [[1.0, 0.7], [[0.3, 1.0, 2.0], [1.0, 0.2, 0.4]]], ids=["scalar", "label"])
@pytest.mark.parametrize("normalization", ["symmetric", "none"])
@pytest.mark.parametrize("compat", COMPATIBILITIES.values(), ids=COMPATIBILITIES)
def test_convergent_mean_field_2_is_the_formula_of_the_paper(compat, normalization, weights):
    """f = E + <x, sum_c diag(k_c) (x) M_c x> / 2 and g = sum x log x, for every compatibility."""
    operators = [Exact(points(N, 2, seed=5)).normalized(normalization), Exact(points(N, 1, seed=6))]
    if weights != [1.0, 0.7]:
        weights = [torch.tensor(w).double() for w in weights]
    P, u = dense(operators, L, weights=weights, compat=compat), normal(N, L, seed=7)
    found = fwcrf.minimize(fwcrf.Energy(P, u), "cmf2", num_steps=6).probabilities
    assert_close(found, torch.from_numpy(formula_of_cmf2(operators, weights, compat, u.numpy(), 6)))


def formula_of_cmf2(operators, weights, compat, u, steps):
    whole = np.zeros((N * L, N * L))
    M = np.asarray(compat, dtype=np.float64)
    M = M * (1 - np.eye(L)) if M.ndim == 0 else np.diag(M) if M.ndim == 1 else M
    for K, w in zip(operators, weights, strict=True):
        w = np.broadcast_to(np.asarray(w), L)
        both = w[:, None] * (M + M.T) / 2
        K = K.to_dense().numpy()
        M_c = (both + both.T) / 2
        P_c = np.kron(K - np.diag(np.diag(K)), M_c)
        whole += P_c + np.kron(np.diag(np.diag(K)), M_c)
    x = np.exp(-u) / np.exp(-u).sum(-1, keepdims=True)
    for _ in range(steps):
        z = -(whole @ x.ravel()).reshape(N, L) - u
        x = np.exp(z - z.max(-1, keepdims=True))
        x /= x.sum(-1, keepdims=True)
    return x
