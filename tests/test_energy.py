import itertools

import pytest
import torch
from torch.testing import assert_close

from fwcrf import Energy
from fwcrf.energy import descend, unary_from_logits
from fwcrf.kernels import Exact, Lattice
from fwcrf.pairwise import Matrix, dense

N, L = 5, 3
DTYPE = torch.float64


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=DTYPE)


@pytest.fixture
def energy():
    return Energy(dense([Exact(random(N, 2))], L, compat=random(L, L, seed=1)), random(N, L, seed=2))


def test_value_is_the_quadratic_form(energy):
    x = random(N, L, seed=3)
    flat = x.flatten()
    expected = 0.5 * flat @ energy.pairwise.to_dense() @ flat + flat @ energy.unary.flatten()
    assert_close(energy.value(x), expected)


def test_grad_is_the_derivative_of_value(energy):
    x = random(N, L, seed=3).requires_grad_()
    (expected,) = torch.autograd.grad(energy.value(x), x)
    assert_close(energy.grad(x), expected)


def test_curvature_completes_the_expansion(energy):
    x, d = random(N, L, seed=3), random(N, L, seed=4)
    a = 0.3
    expected = energy.value(x) + a * (energy.grad(x) * d).sum() + a * a / 2 * energy.curvature(d)
    assert_close(energy.value(x + a * d), expected)


def test_of_labels_sums_the_potentials(energy):
    K = Exact(random(N, 2)).to_dense()
    M = energy.pairwise.compat.matrix(L)
    for labels in itertools.islice(itertools.product(range(L), repeat=N), 0, None, 17):
        expected = sum(energy.unary[i, s] for i, s in enumerate(labels))
        expected += sum(K[i, j] * M[labels[i], labels[j]] for i in range(N) for j in range(i))
        assert_close(energy.of_labels(torch.tensor(labels)), expected)


def test_batch_equals_loop():
    f, u = random(3, N, 2), random(3, N, L, seed=1)
    batched = Energy(dense([Lattice.build(f)], L), u)
    x, labels = random(3, N, L, seed=2), torch.arange(3 * N).view(3, N) % L
    for i in range(3):
        single = Energy(dense([Lattice.build(f[i])], L), u[i])
        assert_close(batched.value(x)[i], single.value(x[i]))
        assert_close(batched.grad(x)[i], single.grad(x[i]))
        assert_close(batched.of_labels(labels)[i], single.of_labels(labels[i]))


def test_values_are_summed_in_float64():
    n = 1_000_000
    energy = Energy(dense([Lattice.build(torch.zeros(n, 1))], 2) * 0.0, torch.full((n, 2), 0.1))
    value = energy.of_labels(torch.zeros(n, dtype=torch.int64))
    assert value.dtype == torch.float64
    assert_close(value.item(), n * float(torch.tensor(0.1)), rtol=1e-12, atol=0)


def test_a_forbidden_label_costs_nothing_until_it_is_taken():
    unary = torch.tensor([[0.0, torch.inf], [1.0, 2.0]])
    energy = Energy(dense([Exact(torch.zeros(2, 1))], 2), unary)
    assert energy.of_labels(torch.tensor([0, 0])) == 1
    assert energy.of_labels(torch.tensor([1, 1])) == torch.inf


def test_logits_become_energies():
    assert_close(unary_from_logits(torch.tensor([1.0, -2.0])), torch.tensor([-1.0, 2.0]))


def test_infinite_logits_are_hard_constraints():
    inf = torch.inf
    logits = torch.tensor([[1.0, -inf, 2.0], [0.0, inf, 5.0], [inf, -inf, inf], [0.0, 1.0, 2.0]])
    expected = torch.tensor([[-1.0, inf, -2.0], [inf, 0.0, inf], [0.0, inf, 0.0], [0.0, -1.0, -2.0]])
    assert_close(unary_from_logits(logits), expected)


def test_infinite_logits_leave_the_others_differentiable():
    logits = torch.tensor([[1.0, -torch.inf], [0.0, torch.inf], [0.5, 2.0]], requires_grad=True)
    unary = unary_from_logits(logits)
    unary[torch.isfinite(unary)].sum().backward()
    assert_close(logits.grad, torch.tensor([[-1.0, 0.0], [0.0, 0.0], [-1.0, -1.0]]))


def test_nan_logits_are_refused():
    with pytest.raises(ValueError, match="1 NaN entries, of 4"):
        unary_from_logits(torch.tensor([[0.0, torch.nan], [1.0, -torch.inf]]))


@pytest.mark.parametrize("where", [0, 7, 4096, 9999])
@pytest.mark.parametrize("learned", [False, True])
def test_nan_is_found_wherever_it_is(where, learned):
    logits = torch.zeros(5000, 2)
    logits.view(-1)[where] = torch.nan
    with pytest.raises(ValueError, match="1 NaN entries, of 10000"):
        unary_from_logits(logits.requires_grad_(learned))


def test_value_can_be_had_from_the_gradient(energy):
    x = random(N, L, seed=3)
    assert_close(energy.value_from_grad(x, energy.grad(x)), energy.value(x))


def test_values_are_differentiable_beside_forbidden_labels():
    unary = torch.tensor([[0.5, torch.inf], [1.0, 2.0]], dtype=DTYPE)
    energy = Energy(dense([Exact(random(2, 1))], 2), unary)
    x = torch.tensor([[1.0, 0.0], [0.3, 0.7]], dtype=DTYPE, requires_grad=True)
    energy.value(x).backward()
    assert_close(x.grad[torch.isfinite(unary)], energy.grad(x)[torch.isfinite(unary)].detach())
    assert torch.isfinite(x.grad).all()


def test_a_label_may_be_forbidden_everywhere_but_not_every_label_somewhere():
    P, unary = dense([Exact(random(N, 2))], L), random(2, N, L)
    unary[1, :, 0] = torch.inf
    Energy(P, unary)
    unary[1, 3] = torch.inf
    with pytest.raises(ValueError, match="every label of some node"):
        Energy(P, unary)


@pytest.mark.parametrize(("n", "power", "converges"), [(200, 0.5, True), (200, 2.0, True), (600, 0.1, False)])
def test_smoothness_is_never_too_small(n, power, converges):
    """Lanczos iteration stops before it has found the largest eigenvalue: its error bound is added."""
    eigenvalues = torch.linspace(0, 1, n, dtype=DTYPE) ** power
    apart = torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=DTYPE)
    energy = Energy(Matrix(torch.kron(torch.diag(eigenvalues), apart), 2), torch.zeros(n, 2, dtype=DTYPE))
    assert bool(energy._top.converged) == converges
    assert 1 <= energy.smoothness <= 1.002


@pytest.mark.parametrize("potts", [True, False])
def test_smoothness_is_the_largest_eigenvalue_within_the_simplices(potts):
    energy = Energy(
        dense([Exact(random(2, N, 2))], L, compat=1.0 if potts else random(L, L, seed=1)), random(2, N, L)
    )
    centre = torch.kron(torch.eye(N), torch.eye(L) - 1 / L).to(DTYPE)
    expected = torch.linalg.eigvalsh(centre @ energy.pairwise.to_dense() @ centre)[..., -1].clamp(min=0)
    assert_close(energy.smoothness, expected, rtol=3e-3, atol=1e-6)
    whole = torch.linalg.eigvalsh(energy.pairwise.to_dense())[..., -1]
    assert (energy.smoothness < whole).all()


@pytest.mark.parametrize(
    ("unary", "error", "message"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), TypeError, "int64"),
        ([[0.0]], TypeError, "list"),
        (torch.zeros(3), ValueError, r"\(3,\)"),
        (torch.zeros(0, 3), ValueError, r"\(0, 3\)"),
        (torch.tensor([[0.0, torch.nan]]), ValueError, "NaN"),
        (torch.tensor([[0.0, -torch.inf]]), ValueError, "-inf"),
        (torch.tensor([[torch.inf, torch.inf]]), ValueError, "every label"),
    ],
)
def test_bad_unary_is_named(unary, error, message):
    with pytest.raises(error, match=message):
        Energy(dense([Exact(torch.zeros(1, 1))], 2), unary)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (torch.zeros(N), TypeError, "float32"),
        (torch.zeros(N + 1, dtype=torch.int64), ValueError, r"\(6,\); expected \(5,\)"),
        (torch.full((N,), L), ValueError, "expected 0 to 2"),
        (torch.full((N,), -1), ValueError, "expected 0 to 2"),
    ],
)
def test_bad_labels_are_named(energy, labels, error, message):
    with pytest.raises(error, match=message):
        energy.of_labels(labels)


@pytest.mark.parametrize("a", [1, 0.5, 0, torch.tensor([0.5, 2.0])], ids=str)
def test_a_step_down_the_gradient_never_leads_to_forbidden_labels(a):
    x, grad = random(2, N, L), random(2, N, L, seed=1)
    expected = x - (a[:, None, None] if isinstance(a, torch.Tensor) else a) * grad
    grad[0, 2, 1] = torch.inf
    expected[0, 2, 1] = -torch.inf
    assert_close(descend(x, a, grad), expected)


def test_smoothness_of_a_model_with_forbidden_labels():
    P, u = dense([Exact(random(N, 2))], L, compat=random(L, L, seed=1)), random(N, L)
    expected = Energy(P, u).smoothness
    u[0, 0] = torch.inf
    assert_close(Energy(P, u).smoothness, expected)
