"""Every solver that has a name: what all of them promise."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers import normal
from problems import ORDERED, PROBLEMS, L, N, best, image, kernel_energy, matrix_energy, start
from skimage import data
from torch.testing import assert_close

import fwcrf
from fwcrf.kernels import Bilateral, Exact, Spatial
from fwcrf.pairwise import Matrix, dense, of_image

NAMES = fwcrf.solvers.names()
# Solvers whose steps are vertices of the simplices have no derivative to speak of.
PIECEWISE_CONSTANT = ("fw", "convex-fw")
SMOOTH = [name for name in NAMES if name not in PIECEWISE_CONSTANT]
# A fixed number of inner steps, where a tolerance would make it depend on the rest of the batch.
SETTINGS = {"cccp-qp1": {"tol": 0.0, "max_steps": 10}}


def solve(E, name, x0=None, num_steps=5, **settings):
    return fwcrf.minimize(E, fwcrf.solvers.get(name, **settings), x0, num_steps=num_steps).probabilities


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", NAMES)
def test_stays_feasible_and_never_beats_enumeration(name, problem):
    E = problem()
    solution = fwcrf.minimize(E, name, num_steps=20)
    x = solution.probabilities
    assert (x >= 0).all()
    assert_close(x.sum(-1), torch.ones(N, dtype=torch.float64))
    assert_close(solution.energy, E.of_labels(x.argmax(-1)))
    assert solution.energy >= best(E) - 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_batch_equals_loop(name):
    E = matrix_energy(1, batch=(3,))
    x = solve(E, name, **SETTINGS.get(name, {}))
    for i in range(3):
        assert_close(x[i], solve(image(E, i), name, **SETTINGS.get(name, {})), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_batch_of_kernels_equals_loop(name):
    f, u = normal(2, N, 2), normal(2, N, L, seed=1)
    settings = SETTINGS.get(name, {})
    x = solve(fwcrf.Energy(dense([Exact(f)], L, compat=ORDERED), u), name, **settings)
    for i in range(2):
        alone = solve(fwcrf.Energy(dense([Exact(f[i])], L, compat=ORDERED), u[i]), name, **settings)
        assert_close(x[i], alone, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("problem", ["potts", "matrix", "ordered"])
@pytest.mark.parametrize("name", NAMES)
def test_hard_constraints_are_respected(name, problem):
    """Node 0 may not take label 0, node 1 must take label 2, though the rest pulls the other way."""
    E = PROBLEMS[problem]()
    logits = -E.unary.clone()
    logits[:, 0] += 4.0
    logits[0, 0] = -torch.inf
    logits[1, 2] = torch.inf
    E = fwcrf.Energy(E.pairwise, fwcrf.energy.unary_from_logits(logits).requires_grad_())
    steps = []
    solution = fwcrf.minimize(E, name, num_steps=6, callback=lambda k, x: steps.append(x))
    for x in steps:
        assert torch.isfinite(x).all()
        assert_close(x.sum(-1), torch.ones(N, dtype=torch.float64))
        assert x[0, 0] == x[1, 0] == x[1, 1] == 0
    assert torch.isfinite(solution.energy)
    with torch.no_grad():
        for record in fwcrf.minimize(E, name, num_steps=6, trace=True, tol=1e-9).trace:
            assert torch.isfinite(
                torch.stack([record.value, record.energy, record.rounded, record.gap])
            ).all()
    if name not in PIECEWISE_CONSTANT:
        (x[:, 1].sum() + (x * x).sum()).backward()
        allowed = torch.isfinite(E.unary.detach())
        assert torch.isfinite(E.unary.grad[allowed]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_labels_masked_by_the_lowest_number_are_as_good_as_forbidden(name, dtype):
    """Logits of torch.finfo(dtype).min, a usual mask: neither infinity nor NaN, forward and backward."""
    lowest = torch.finfo(dtype).min
    logits = normal(N, L, seed=3).to(dtype)
    logits[0, 0] = logits[1, 0] = logits[1, 1] = lowest
    features = normal(N, 2).to(dtype).requires_grad_()
    compat = torch.as_tensor(ORDERED, dtype=dtype).clone().requires_grad_()
    logits.requires_grad_()
    E = fwcrf.Energy(dense([Exact(features)], L, compat=compat), fwcrf.energy.unary_from_logits(logits))
    x = solve(E, name, **SETTINGS.get(name, {}))
    assert torch.isfinite(x).all()
    assert_close(x.sum(-1), torch.ones(N, dtype=dtype))
    assert x[0, 0] == x[1, 0] == x[1, 1] == 0
    if x.requires_grad:
        weights = normal(N, L, seed=4).to(dtype)
        for grad in torch.autograd.grad((x * weights).sum(), (features, compat, logits), allow_unused=True):
            assert grad is None or torch.isfinite(grad).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_kept_and_start_is_not_changed(name, dtype):
    E = kernel_energy(2)
    E = fwcrf.Energy(E.pairwise, E.unary.to(dtype))
    x0 = start(E)
    before = x0.clone()
    assert solve(E, name, x0).dtype == dtype
    assert torch.equal(x0, before)


@pytest.fixture(scope="module")
def photograph():
    """A crop of a photograph, two kernels by lattice and by separable filters, four labels."""
    picture = data.astronaut()[40:88, 200:264]
    grey = picture.astype(np.float32).mean(-1) / 255
    logits = torch.from_numpy(-8 * (grey[..., None] - np.linspace(0.1, 0.9, 4, dtype=np.float32)) ** 2)
    P = of_image([Bilateral(xy=20, color=20, weight=2.0), Spatial(xy=3)], picture, 4)
    return P, logits.flatten(0, 1)


@pytest.mark.parametrize("gradient", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", NAMES)
def test_runs_with_its_defaults_on_an_image(name, gradient, photograph):
    P, logits = photograph
    logits = logits.clone().requires_grad_(gradient)
    E = fwcrf.Energy(P, fwcrf.energy.unary_from_logits(logits))
    with torch.set_grad_enabled(gradient):
        solution = fwcrf.minimize(E, name, num_steps=4)
    assert solution.energy < E.of_labels(logits.detach().argmax(-1))
    assert solution.labels.shape == logits.shape[:1]
    if gradient and name != "fw":  # whose first step is a vertex, which nothing moves
        (grad,) = torch.autograd.grad(solution.probabilities.square().sum(), logits)
        assert torch.isfinite(grad).all()
        assert name in PIECEWISE_CONSTANT or grad.abs().max() > 0


@pytest.mark.parametrize("compat", [1.0, ORDERED], ids=["potts", "ordered"])
@pytest.mark.parametrize("name", SMOOTH)
def test_five_steps_are_differentiable_in_unary_and_weights(name, compat):
    features, unary = normal(4, 2), normal(4, L, seed=3)

    def run(unary, weight, compat):
        P = dense([Exact(features), Exact(features[:, :1])], L, weights=[weight, 0.5], compat=compat)
        return solve(fwcrf.Energy(P, unary), name, **SETTINGS.get(name, {}))

    weight = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    inputs = (unary.requires_grad_(), weight, compat)
    torch.autograd.gradcheck(run, inputs, atol=1e-5, rtol=1e-3, fast_mode=True)


@pytest.mark.parametrize("name", ["efw", "l2fw", "tsallis-fw", "binary-entropy-fw", "lp-fw"])
def test_five_steps_are_differentiable_in_lambda_and_steps(name):
    E = matrix_energy(2, n=4)

    def run(weight, steps):
        return solve(E, name, weight=weight, step=steps)

    weight = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(run, (weight, torch.linspace(0.9, 0.3, 5).double().requires_grad_()))


@pytest.mark.parametrize("name", ["mf", "cmf1", "cmf2", "cccp-qp2", "pgd", "pgm", "fista", "emd"])
def test_five_steps_are_differentiable_in_the_steps(name):
    E = kernel_energy(2, n=4)
    steps = torch.linspace(0.9, 0.3, 5).double().requires_grad_()
    torch.autograd.gradcheck(lambda s: solve(E, name, step=s), (steps,), atol=1e-5, rtol=1e-3)


def test_a_penalty_of_admm_is_differentiable():
    E = kernel_energy(2, n=4)
    rho = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
    for name in ("admm", "bregman-admm"):
        torch.autograd.gradcheck(lambda r, name=name: solve(E, name, rho=r), (rho,))


def test_vanilla_frank_wolfe_has_no_gradient_and_the_regularized_have():
    E = matrix_energy(4)
    unary = E.unary.clone().requires_grad_()
    x0 = start(E)
    for name, settings, nothing in (("fw", {}, True), ("efw", {}, False), ("l2fw", {"weight": 5.0}, False)):
        x = solve(fwcrf.Energy(Matrix(E.pairwise.values, L), unary), name, x0, 3, step=1.0, **settings)
        gradient = torch.zeros_like(unary)
        if x.requires_grad:
            (gradient,) = torch.autograd.grad((x * normal(N, L, seed=9)).sum(), unary)
        assert (gradient.abs().max() == 0) == nothing


@pytest.mark.parametrize("name", ["mf", "efw", "l2fw", "cccp-qp2", "cmf1", "cmf2", "convex-fw"])
def test_line_search_and_adaptive_steps_never_raise_the_objective(name):
    for problem in (PROBLEMS["matrix"], PROBLEMS["potts"], PROBLEMS["ordered"]):
        for step in (fwcrf.stepsizes.LineSearch(), fwcrf.stepsizes.Adaptive()):
            solver = fwcrf.solvers.get(name, step=step)
            values = [
                r.value.item() for r in fwcrf.minimize(problem(), solver, num_steps=8, trace=True).trace
            ]
            assert all(b <= a + 1e-9 * (1 + abs(a)) for a, b in pairwise(values))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fwcrf.solvers.get("newton"), "expected one of mf, fw, l2fw, efw, "),
        (lambda: fwcrf.solvers.get("mf", weight=2.0), "no setting 'weight'; expected step"),
        (lambda: fwcrf.solvers.get("l2fw", weight=0.0), "positive"),
        (lambda: fwcrf.solvers.get("efw", weight=-1.0), "weight=-1.0"),
        (lambda: fwcrf.solvers.get("efw", weight=torch.tensor([[1.0], [-2.0]])), "the smallest is -2"),
        (lambda: fwcrf.solvers.get("l2fw", step=1.5), "from 0 to 1"),
        (lambda: fwcrf.solvers.get("pgm", step=fwcrf.stepsizes.LineSearch()), "'pgd' takes any rule"),
        (lambda: fwcrf.solvers.get("admm", rho=0.0), "rho=0.0"),
        (lambda: fwcrf.minimize(matrix_energy(), "newton", num_steps=1), "not known"),
    ],
)
def test_bad_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("MF", "mf"),
        ("meanfield", "mf"),
        ("mean_field", "mf"),
        ("l2-fw", "l2fw"),
        ("Frank-Wolfe", "fw"),
        ("anneal", "anneal-fw"),
        ("lp-mesh", "lp-meshi"),
    ],
)
def test_an_unknown_name_is_answered_with_the_closest(given, meant):
    with pytest.raises(ValueError, match=f"expected one of mf, .*: did you mean '{meant}'\\?"):
        fwcrf.solvers.get(given)


def test_a_name_like_no_other_is_answered_without_a_guess():
    with pytest.raises(ValueError) as error:
        fwcrf.solvers.get("qqqqqqqq")
    assert "did you mean" not in str(error.value)


ENTRIES = {
    "minimize": lambda solver: fwcrf.minimize(matrix_energy(), solver, num_steps=1),
    "layer": lambda solver: fwcrf.DenseCRF(3, solver=solver),
    "refine": lambda solver: fwcrf.refine(
        np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 1 / 3), solver=solver
    ),
    "refine_points": lambda solver: fwcrf.refine_points(
        normal(5, 3), normal(5, 3), normal(5, 3).softmax(-1), solver=solver
    ),
}


@pytest.mark.parametrize("solver", [None, 3, fwcrf.solvers.FrankWolfe, ["mf"]], ids=str)
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_solver_that_is_none_is_answered_with_a_sentence(entry, solver):
    with pytest.raises(TypeError, match=r"solver=.*expected a name such as 'l2fw'.*solvers\.get"):
        entry(solver)


def test_tsallis_joins_the_entropic_and_the_euclidean_solver():
    E = matrix_energy()

    def probabilities(name, **settings):
        return fwcrf.minimize(E, fwcrf.solvers.get(name, **settings), num_steps=5).probabilities

    assert torch.equal(probabilities("tsallis-fw", alpha=2.0), probabilities("l2fw"))
    assert torch.equal(probabilities("tsallis-fw", alpha=2.0, weight=0.4), probabilities("l2fw", weight=0.4))
    entropic = probabilities("efw", weight=0.6)
    assert torch.equal(probabilities("tsallis-fw", alpha=1.0, weight=0.6), entropic)
    far, near = (
        (probabilities("tsallis-fw", alpha=alpha, weight=0.6) - entropic).abs().max()
        for alpha in (1.01, 1.0001)
    )
    assert near < 0.02 * far < 0.02
