"""The CRF layer: what goes in, what comes out, what is learned."""

import copy
import io
import math
import pickle

import pytest
import torch
from crfs import GRID, L, crf, image, kernels, logits
from helpers import normal

import fwcrf
from fwcrf import DenseCRF, Solution, solvers
from fwcrf.compatibility import Full, Potts
from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.layer import LEARNABLE, fold
from fwcrf.solvers.plan import Plan, plan

# Vertices have an infinite logarithm; the default keeps away from it by this much.
EPSILON = 1e-6


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["mf", "efw", "l2fw", "fw", "pgd", "emd"])
@pytest.mark.parametrize("skip", [0.0, 0.3])
def test_is_the_solver_on_the_energy_of_the_image(solver, skip):
    layer = crf(solver=solver, num_steps=4, skip=skip)
    photo, z = image(2), logits(2)
    x0 = torch.softmax(z.flatten(2).mT, -1)
    P = fwcrf.pairwise.of_image(kernels(), photo, L)
    x = fwcrf.minimize(fwcrf.Energy(P, -z.flatten(2).mT.contiguous()), solver, x0, num_steps=4).probabilities
    expected = torch.log((1 - EPSILON) * ((1 - skip) * x + skip * x0) + EPSILON / L)
    torch.testing.assert_close(layer(photo, z), expected.mT.unflatten(-1, GRID), rtol=1e-12, atol=1e-12)


def test_probabilities_sum_to_one_and_are_bounded_from_below():
    z = 30 * logits(2)
    for solver in ("l2fw", "fw"):
        answer = crf(solver=solver)(image(2), z)
        torch.testing.assert_close(answer.exp().sum(1), torch.ones(2, *GRID).double())
        assert float(answer.min()) == pytest.approx(math.log(EPSILON / L))


def test_default_kernels_are_those_of_the_paper():
    assert DenseCRF(2).kernels == (Spatial(3.0), Bilateral(80.0, 13.0))


def test_batch_equals_loop():
    layer, photo, z = crf(), image(3), logits(3)
    for one, i, s in zip(layer(photo, z), photo, z, strict=True):
        torch.testing.assert_close(one, layer(i, s), rtol=1e-10, atol=1e-10)


def test_one_image_serves_a_batch_of_logits():
    layer, photo, z = crf(), image(), logits(3)
    torch.testing.assert_close(
        layer(photo, z), layer(photo.expand(3, *photo.shape), z), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("grid", [(17,), (3, 4, 5)], ids=str)
def test_any_number_of_grid_axes(grid):
    layer = crf(spatial_dims=len(grid), num_steps=3)
    for batch in ((), (2,)):
        photo, z = image(*batch, grid=grid), logits(*batch, grid=grid)
        assert layer(photo, z).shape == z.shape
        found = layer.solve(photo, z)
        assert found.labels.shape == (*batch, *grid)
        flat = fwcrf.minimize(layer.energy(photo, z), "l2fw", num_steps=3)
        assert torch.equal(found.labels.flatten(-len(grid)), flat.labels)


def test_features_of_ones_own_are_the_channels_of_the_image():
    feature_map = image(2, channels=4)
    layer = crf(kernels=[Gaussian(weight=2.0)], num_steps=2)
    E = layer.energy(feature_map, logits(2))
    K = Gaussian(method="lattice").operator(feature_map.flatten(2).mT.contiguous())
    x = normal(2, 20, L)
    M = 1 - torch.eye(L).double()
    torch.testing.assert_close(E.pairwise(x), 2 * K.without_self_edges()(x) @ M)


def test_self_edges():
    E, with_edges = (crf(self_edges=s).energy(image(), logits()) for s in (False, True))
    assert E.pairwise.to_dense().diagonal().abs().max() < 1e-12
    same_node = with_edges.pairwise.to_dense().view(20, L, 20, L)[0, :, 0]
    assert float(same_node.abs().max()) > 0.1


# --- dtypes and layouts ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("image_dtype", [torch.uint8, torch.float16, torch.float32, torch.float64], ids=str)
def test_dtype_comes_back(dtype, image_dtype):
    photo = (image(2) * 255).to(image_dtype)
    layer = DenseCRF(L, kernels=[Spatial(1.2), Bilateral(3.0, 80.0)], learnable=("weights",))
    z = logits(2, dtype=dtype)
    answer = layer(photo, z)
    assert answer.dtype == dtype and answer.is_contiguous()
    inside = torch.float64 if dtype == torch.float64 else torch.float32
    expected = layer(photo.to(inside), z.to(inside)).to(dtype)
    torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-3)
    assert layer.solve(photo, z).probabilities.dtype == dtype
    answer.float().square().mean().backward()
    assert torch.isfinite(layer.weights.grad).all()


def test_autocast_computes_in_float32_and_returns_what_came_in():
    layer = crf(dtype=torch.float32, learnable=("weights", "compatibility"), weights="full")
    photo, z = image(2, dtype=torch.float32), logits(2, dtype=torch.float32)
    expected = layer(photo, z)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(photo, z), expected)
        half = torch.nn.functional.conv2d(z, torch.eye(L)[..., None, None])
        assert half.dtype == torch.bfloat16
        assert layer(photo, half).dtype == torch.bfloat16
        loss = fwcrf.losses.energy(photo, z.softmax(1), kernels())
    assert loss.dtype == torch.float32


def test_layout_of_memory_does_not_matter():
    layer, photo, z = crf(), image(2), logits(2)
    strided = z.to(memory_format=torch.channels_last)
    assert torch.equal(layer(photo.to(memory_format=torch.channels_last), strided), layer(photo, z))


def test_inputs_are_not_changed():
    layer, photo, z = crf(), image(2), logits(2)
    before = photo.clone(), z.clone()
    layer(photo, z)
    layer.solve(photo, z)
    assert torch.equal(photo, before[0]) and torch.equal(z, before[1])


# --- one logit per pixel --------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["l2fw", "mf", "fw"])
def test_a_single_logit_is_the_second_of_two_labels(solver):
    photo, z = image(2), 3 * logits(2, labels=1)
    one, two = crf(1, solver=solver, skip=0.25), crf(2, solver=solver, skip=0.25)
    log_p = two(photo, torch.cat([torch.zeros_like(z), z], 1))
    answer = one(photo, z)
    assert answer.shape == z.shape
    torch.testing.assert_close(answer, log_p[:, 1:] - log_p[:, :1])
    found = one.solve(photo, z)
    assert found.probabilities.shape == z.shape
    assert torch.equal(found.labels.unsqueeze(1), (found.probabilities > 0.5).long())


def test_a_single_logit_is_bounded():
    answer = crf(1)(image(), 1e4 * logits(labels=1).sign())
    assert float(answer.abs().max()) == pytest.approx(math.log(2 / EPSILON - 1), rel=1e-6)


def test_a_single_logit_learns():
    """The loss must not be stuck at log 2."""
    layer = crf(1, dtype=torch.float32, learnable=("weights", "lambda"), skip=0.5)
    photo = image(2, dtype=torch.float32)
    z = torch.zeros(2, 1, *GRID, requires_grad=True)
    target = (photo[:, :1] > 0.5).float()
    optimizer = torch.optim.Adam([z, *layer.parameters()], lr=0.1)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(photo, z), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3)
    assert losses[-1] < 0.1


# --- solve ----------------------------------------------------------------------------------------


def test_solve_answers_in_the_layout_that_came_in():
    layer, photo, z = crf(), image(2), logits(2)
    found = layer.solve(photo, z, solver="mf", num_steps=7, trace=True)
    flat = fwcrf.minimize(layer.energy(photo, z), "mf", num_steps=7, trace=True)
    assert isinstance(found, Solution)
    assert found.labels.shape == (2, *GRID)
    assert torch.equal(found.probabilities, flat.probabilities.mT.unflatten(-1, GRID))
    assert torch.equal(found.labels.flatten(1), flat.labels)
    assert torch.equal(found.energy, flat.energy)
    assert len(found.trace) == 8
    assert not found.converged


def test_solve_passes_its_settings_on():
    layer, photo, z = crf(num_steps=3), image(), logits()
    seen = []
    layer.solve(photo, z, callback=lambda k, x: seen.append(k))
    assert seen == [0, 1, 2, 3]
    assert layer.solve(photo, z, num_steps=500, tol=1e-6).converged
    assert layer.solve(photo, z, rounding="bcd").energy <= layer.solve(photo, z).energy + 1e-9


def test_solve_uses_what_was_learned():
    layer = crf(learnable=("lambda", "steps"), num_steps=2)
    with torch.no_grad():
        layer.log_lambda.fill_(math.log(3.0))
        layer.raw_steps.copy_(torch.tensor([0.5, 0.25]))
    own = solvers.get("l2fw", weight=3.0, step=[0.5, 0.25])
    photo, z = image(), logits()
    found = layer.solve(photo, z, num_steps=4).probabilities
    torch.testing.assert_close(found, layer.solve(photo, z, solver=own, num_steps=4).probabilities)


def test_labels_of_half_precision_are_not_rounded_first():
    layer, photo = crf(dtype=torch.float32), image(2, dtype=torch.float32)
    z = logits(2, dtype=torch.float16)
    assert torch.equal(layer.solve(photo, z).labels, layer.solve(photo, z.float()).labels)


# --- parameters -----------------------------------------------------------------------------------


def test_nothing_is_learned_unless_named():
    assert list(crf().parameters()) == []
    assert crf().state_dict() == {}


@pytest.mark.parametrize("name", LEARNABLE)
def test_each_name_makes_its_parameters_and_changes_nothing_else(name):
    layer = crf(learnable=(name,), skip=0.5, num_steps=3)
    sizes = {n: tuple(p.shape) for n, p in layer.named_parameters()}
    expected = {
        "weights": {"weights": (2,)},
        "compatibility": {"compatibility": (L, L)},
        "lambda": {"log_lambda": ()},
        "steps": {"raw_steps": (3,)},
        "skip": {"raw_skip": ()},
        "bandwidths": {
            "log_bandwidths.0_xy": (2,),
            "log_bandwidths.1_color": (),
            "log_bandwidths.1_xy": (2,),
        },
        "temperature": {"log_temperature": ()},
        "bias": {"bias": (L,)},
    }
    assert sizes == expected[name]
    plain = crf(skip=0.5, num_steps=3)
    torch.testing.assert_close(layer(image(2), logits(2)), plain(image(2), logits(2)), rtol=1e-6, atol=1e-6)


def test_all_matrices_of_21_labels_are_1323_parameters():
    layer = DenseCRF(21, learnable=("weights", "compatibility"), weights="full")
    assert sum(p.numel() for p in layer.parameters()) == 1323


@pytest.mark.parametrize("kind", ["scalar", "label", "full"])
def test_weights_start_at_those_of_the_kernels(kind):
    plain, layer = crf(), crf(learnable=("weights",), weights=kind)
    photo, z = image(2), logits(2)
    torch.testing.assert_close(layer(photo, z), plain(photo, z), rtol=1e-6, atol=1e-6)


def test_full_weights_multiply_the_compatibility():
    layer = crf(learnable=("weights", "compatibility"), weights="full", noise=0.5)
    W, M = layer.weights.detach(), layer.compatibility.detach()
    x, photo = normal(20, L), image()
    expected = 0
    for kernel, w in zip(layer.kernels, W, strict=True):
        product = w @ (M + M.mT) / 2
        expected = expected + kernel.operator(photo).without_self_edges()(x) @ (product + product.mT) / 2
    torch.testing.assert_close(layer.energy(photo, logits()).pairwise(x), expected)


def test_noise_is_of_the_size_asked_for_and_seeded_by_torch():
    def build(noise):
        torch.manual_seed(5)
        return DenseCRF(40, learnable=("weights", "compatibility"), weights="full", noise=noise)

    plain, noisy = build(0.0), build(0.1)
    assert torch.equal(plain.compatibility, 1 - torch.eye(40))
    for a, b in zip(plain.parameters(), noisy.parameters(), strict=True):
        assert (a - b).std().item() == pytest.approx(0.1, rel=0.1)
    assert torch.equal(noisy.compatibility, build(0.1).compatibility)


def test_negative_identity_differs_from_potts_by_a_constant_per_pixel():
    photo, z = image(2), logits(2)
    potts, other = crf(compatibility=2.0), crf(compatibility=2.0, init="negative-identity")
    matrix = other.energy(photo, z).pairwise.terms[0].compat.matrix(L)
    assert torch.equal(matrix, -1.6 * torch.eye(L, dtype=torch.float64))
    torch.testing.assert_close(potts(photo, z), other(photo, z))


def test_learned_values_have_names():
    layer = crf(learnable=LEARNABLE, skip=0.25, num_steps=2)
    assert layer.skip.item() == 0.25
    assert layer.steps.tolist() == [1.0, 1.0]
    assert layer.lambda_.item() == pytest.approx(1.0)
    values = {name: value.tolist() for name, value in layer.bandwidths.items()}
    assert values == {
        "0.xy": pytest.approx([1.21, 1.21]),
        "1.xy": pytest.approx([2.93, 2.93]),
        "1.color": pytest.approx(0.37),
    }


def test_constants_have_the_same_names():
    layer = crf(solver=solvers.get("efw", weight=0.5, step=[1.0, 0.5]), skip=0.25, num_steps=3)
    assert layer.skip == 0.25
    assert layer.steps.tolist() == [1.0, 0.5, 0.5]
    assert layer.lambda_ == 0.5
    assert layer.temperature == 1.0 and layer.bias.tolist() == [0.0] * L
    assert layer.bandwidths["1.xy"].tolist() == pytest.approx([2.93, 2.93])


def test_fold_is_the_identity_inside_and_reflects_outside():
    raw = torch.linspace(-3, 4, 701, dtype=torch.float64, requires_grad=True)
    y = fold(raw)
    assert y.min().item() >= 0 and y.max().item() <= 1
    inside = (raw >= 0) & (raw <= 1)
    assert torch.equal(y[inside], raw[inside])
    torch.testing.assert_close(y, (raw - 2 * torch.round(raw / 2)).abs())
    y.sum().backward()
    assert (raw.grad.abs() == 1).all()
    end = torch.tensor([0.0, 1.0], requires_grad=True)
    fold(end).sum().backward()
    assert end.grad.tolist() == [1.0, 1.0]


def test_parameters_stay_in_range_wherever_an_optimizer_puts_them():
    layer = crf(learnable=LEARNABLE)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(400.0)
    assert 0 <= layer.skip.item() <= 1
    assert ((layer.steps >= 0) & (layer.steps <= 1)).all()
    assert 0.0099 <= layer.lambda_.item() <= 100.001
    assert all(torch.isfinite(b).all() and (b > 0).all() for b in layer.bandwidths.values())


@pytest.mark.parametrize("solver", ["l2fw", "efw", "mf"])
def test_every_parameter_gets_a_gradient(solver):
    layer = crf(solver=solver, learnable=LEARNABLE, skip=0.4, num_steps=3)
    with torch.no_grad():
        layer.raw_steps.fill_(0.6)
    photo, z = image(2).requires_grad_(), (2 * logits(2)).requires_grad_()
    (layer(photo, z) * normal(2, L, *GRID, seed=9)).sum().backward()
    for name, p in layer.named_parameters():
        assert p.grad is not None and float(p.grad.abs().max()) > 1e-8, name
    assert float(photo.grad.abs().max()) > 1e-8 and float(z.grad.abs().max()) > 1e-8


def test_vanilla_frank_wolfe_learns_nothing_and_says_so():
    with pytest.warns(UserWarning, match="gradient is zero.*'l2fw' or 'efw'"):
        layer = crf(solver="fw", learnable=("weights", "compatibility"), skip=0.5)
    z, v = logits(2).requires_grad_(), normal(2, L, *GRID)
    (layer(image(2), z).exp() * v).sum().backward()
    assert not layer.weights.grad.any() and not layer.compatibility.grad.any()
    # All that reaches the logits went past the solver.
    (past,) = torch.autograd.grad((0.5 * (1 - EPSILON) * z.softmax(1) * v).sum(), z)
    torch.testing.assert_close(z.grad, past)


@pytest.mark.parametrize("gradient", ["unrolled", "checkpoint"])
def test_vanilla_frank_wolfe_in_a_training_loop_has_zero_gradients(gradient):
    """Not an error of autograd about a result without a graph, nor about a parameter that is not in it."""
    with pytest.warns(UserWarning, match="gradient is zero"):
        layer = crf(solver="fw", learnable=("weights", "compatibility", "bandwidths"), gradient=gradient)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    before = [p.detach().clone() for p in layer.parameters()]
    photo, z = image(2).requires_grad_(), logits(2).requires_grad_()
    torch.nn.functional.nll_loss(layer(photo, z), torch.zeros(2, *GRID, dtype=torch.long)).backward()
    optimizer.step()
    for t in (photo, z, *layer.parameters()):
        assert t.grad is not None and not t.grad.any()
    assert all(torch.equal(p, old) for p, old in zip(layer.parameters(), before, strict=True))
    with torch.no_grad():
        assert not layer(photo, z).requires_grad
    z.requires_grad_(False)
    assert torch.equal(crf(solver="fw")(image(2), z), layer(image(2), z))
    assert not crf(solver="fw")(image(2), z).requires_grad


# --- temperature and bias -------------------------------------------------------------------------


@pytest.mark.parametrize("learnable", [(), ("temperature", "bias")], ids=str)
@pytest.mark.parametrize("skip", [0.0, 0.5])
def test_temperature_and_bias_change_the_logits_alone(learnable, skip):
    b = torch.tensor([0.5, -1.0, 0.25])
    photo, z = image(2), logits(2)
    layer = crf(temperature=2.5, bias=b, learnable=learnable, skip=skip)
    plain = crf(skip=skip)
    expected = plain(photo, z / 2.5 + b.view(-1, 1, 1))
    torch.testing.assert_close(layer(photo, z), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(layer.solve(photo, z).labels, plain.solve(photo, z / 2.5 + b.view(-1, 1, 1)).labels)
    assert (
        torch.as_tensor(layer.temperature).item() == pytest.approx(2.5) and layer.bias.tolist() == b.tolist()
    )


def test_temperature_and_bias_keep_the_engine():
    layer = crf(dtype=torch.float32, learnable=("temperature", "bias", "weights"))
    f = layer.energy(image(dtype=torch.float32), logits(dtype=torch.float32))
    assert f.unary.requires_grad
    assert isinstance(plan(f, layer._solver(), None, 5), Plan)


def test_a_single_logit_has_one_temperature_and_one_bias():
    photo, z = image(2), logits(2, labels=1)
    layer = crf(1, temperature=0.5, bias=[0.3], learnable=("bias",))
    assert layer.bias.shape == (1,)
    torch.testing.assert_close(layer(photo, z), crf(1)(photo, 2 * z + 0.3), rtol=1e-6, atol=1e-6)


def test_a_temperature_stays_within_its_range():
    layer = crf(learnable=("temperature",), temperature=2.0)
    with torch.no_grad():
        layer.log_temperature.fill_(50.0)
    assert 0.02 <= layer.temperature.item() <= 200


# --- a compatibility for each kernel --------------------------------------------------------------


def own_matrices() -> list:
    return [Potts(torch.tensor(0.7)), Full(torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 0.5], [2.0, 0.5, 0.0]]))]


@pytest.mark.parametrize("learnable", [(), ("weights",), ("compatibility",), ("weights", "compatibility")])
@pytest.mark.parametrize("kind", ["scalar", "full"])
def test_a_compatibility_for_each_kernel(learnable, kind):
    settings = {"weights": kind} if "weights" in learnable else {}
    layer = crf(compatibility=own_matrices(), learnable=learnable, **settings)
    P = fwcrf.pairwise.of_image(kernels(), image(), L, compat=own_matrices())
    x = normal(20, L)
    torch.testing.assert_close(layer.energy(image(), logits()).pairwise(x), P(x), rtol=1e-6, atol=1e-6)
    if "compatibility" in learnable:
        assert layer.compatibility.shape == (2, L, L)
        with torch.no_grad():
            layer.compatibility[0].zero_()  # the first kernel alone
        second = fwcrf.pairwise.of_image(kernels()[1:], image(), L, compat=own_matrices()[1:])
        found = layer.energy(image(), logits()).pairwise(x)
        torch.testing.assert_close(found, second(x), rtol=1e-6, atol=1e-6)


# --- distance from the start ----------------------------------------------------------------------


def test_the_penalty_is_the_squared_distance_from_the_start():
    layer = crf(learnable=LEARNABLE, noise=0.1, skip=0.5)
    assert layer.penalty().item() == 0 and set(layer.movement()) == set(LEARNABLE)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.1)
    number = sum(p.numel() for p in layer.parameters())
    assert layer.penalty().item() == pytest.approx(0.01 * number, rel=1e-5)
    assert layer.penalty(["bias", "lambda"]).item() == pytest.approx(0.01 * (L + 1), rel=1e-5)
    layer.penalty().backward()
    for p in layer.parameters():
        torch.testing.assert_close(p.grad, torch.full_like(p, 0.2))
    moved = layer.movement()
    assert moved["bias"] == pytest.approx(0.1, rel=1e-5)
    assert moved["weights"] == pytest.approx(0.1 / math.sqrt((0.8**2 + 1.5**2) / 2), rel=1e-5)


def test_a_penalty_of_a_layer_without_parameters_is_zero():
    assert crf().penalty().item() == 0 and crf().movement() == {}


def test_the_start_is_in_the_state_dict():
    layer, other = (crf(learnable=LEARNABLE, noise=0.3) for _ in range(2))
    with torch.no_grad():
        layer.compatibility.mul_(2)
    other.load_state_dict(layer.state_dict())
    assert other.penalty().item() == layer.penalty().item() > 0
    assert "start.log_bandwidths_1_xy" in layer.state_dict()


def test_a_state_dict_without_a_start_is_read():
    """As earlier versions wrote it."""
    layer, other = crf(learnable=("weights",)), crf(learnable=("weights",))
    with torch.no_grad():
        layer.weights.add_(1.0)
    other.load_state_dict({"weights": layer.weights.detach()})
    assert torch.equal(other.weights, layer.weights) and other.penalty().item() == pytest.approx(2.0)


# --- life of a module -----------------------------------------------------------------------------


def everything_learned(**settings) -> DenseCRF:
    layer = crf(learnable=LEARNABLE, skip=0.5, weights="label", **settings)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.1)
    return layer


def copies(layer):
    loaded = crf(learnable=LEARNABLE, weights="label")
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    loaded.load_state_dict(torch.load(buffer, weights_only=True))
    return {
        "state_dict": loaded,
        "deepcopy": copy.deepcopy(layer),
        "pickle": pickle.loads(pickle.dumps(layer)),
    }


@pytest.mark.parametrize("way", ["state_dict", "deepcopy", "pickle"])
def test_copies_answer_alike(way):
    layer = everything_learned()
    other = copies(layer)[way]
    photo, z = image(2), logits(2)
    assert torch.equal(other(photo, z), layer(photo, z))
    with torch.no_grad():
        other.weights.add_(1.0)
    assert not torch.equal(other.weights, layer.weights)


def test_gradients_accumulate():
    layer, photo, z = everything_learned(), image(4), logits(4)
    layer(photo, z).sum().backward()
    whole = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    for i, s in zip(photo.split(2), z.split(2), strict=True):
        layer(i, s).sum().backward()
    for a, p in zip(whole, layer.parameters(), strict=True):
        torch.testing.assert_close(p.grad, a, rtol=1e-8, atol=1e-10)


def test_repr_says_what_it_is():
    assert "temperature=2.0" in repr(crf(temperature=2.0)) and "temperature" not in repr(crf())
    assert "bias=[0.0, 0.0, 0.0]" in repr(crf(learnable=("temperature", "bias")))
    text = repr(crf(learnable=("lambda",)))
    assert "num_labels=3" in text and "learnable=('lambda',)" in text


# --- refusals -------------------------------------------------------------------------------------

REFUSED = {
    "unknown learnable": (lambda: DenseCRF(3, learnable=("colour",)), ValueError, "'colour'.*bandwidths"),
    "learnable as a string": (lambda: DenseCRF(3, learnable="skip"), TypeError, r"\('skip',\)"),
    "no labels": (lambda: DenseCRF(0), ValueError, "num_labels=0"),
    "negative steps": (lambda: DenseCRF(3, num_steps=-1), ValueError, "num_steps=-1"),
    "unknown solver": (lambda: DenseCRF(3, solver="sgd"), ValueError, "'sgd' is not known"),
    "unknown init": (lambda: DenseCRF(3, init="ones"), ValueError, "init='ones'.*potts"),
    "unknown weights": (
        lambda: DenseCRF(3, learnable=("weights",), weights="many"), ValueError, "weights='many'.*scalar"
    ),
    "weights not learned": (lambda: DenseCRF(3, weights="full"), ValueError, "'weights' in learnable"),
    "unknown gradient": (lambda: DenseCRF(3, gradient="magic"), ValueError, "'magic'.*checkpoint"),
    "skip beyond 1": (lambda: DenseCRF(3, skip=1.5), ValueError, "skip=1.5"),
    "negative noise": (lambda: DenseCRF(3, noise=-1.0), ValueError, "noise=-1.0"),
    "epsilon 0": (lambda: DenseCRF(3, epsilon=0.0), ValueError, "epsilon=0.0"),
    "lambda of a solver without": (
        lambda: DenseCRF(3, solver="pgd", learnable=("lambda",)), ValueError, "'lambda'.*which has none"
    ),
    "lambda of a solver with one per step": (
        lambda: DenseCRF(3, solver="anneal-fw", learnable=("lambda",)), ValueError, "'lambda'.*step to step"
    ),
    "steps of a line search": (
        lambda: DenseCRF(3, solver="convex-fw", learnable=("steps",)), ValueError, "'steps'.*on k alone"
    ),
    "bandwidths of features": (
        lambda: DenseCRF(3, [Gaussian()], learnable=("bandwidths",)), ValueError, "no kernel has any"
    ),
    "compatibility of another size": (lambda: DenseCRF(3, compatibility=torch.eye(4)), ValueError, "4, 4"),
    "matrix as negative identity": (
        lambda: DenseCRF(3, compatibility=torch.eye(3), init="negative-identity"), ValueError, "number w"
    ),
    "temperature 0": (lambda: DenseCRF(3, temperature=0.0), ValueError, "temperature=0.0.*positive"),
    "bias of another size": (lambda: DenseCRF(3, bias=[1.0, 2.0]), ValueError, r"\(2,\).*one per label"),
    "endless bias": (lambda: DenseCRF(3, bias=math.inf), ValueError, "bias=inf.*finite"),
    "compatibilities of other kernels": (
        lambda: DenseCRF(3, compatibility=own_matrices()[:1]), ValueError, "1 compatibilities for 2 kernels"
    ),
    "penalty of a constant": (lambda: crf().penalty(["bias"]), ValueError, "'bias' is not learned"),
    "penalty of an unknown name": (lambda: crf().penalty(["colour"]), ValueError, "'colour'.*bandwidths"),
    "other grid": (
        lambda: crf()(image(), logits(grid=(4, 6))), ValueError, r"\(3, 4, 5\).*\(3, 4, 6\).*same grid"
    ),
    "other batch": (lambda: crf()(image(2), logits(3)), ValueError, "same batch"),
    "labels last": (lambda: crf()(image(2), logits(2, labels=4)), ValueError, "4 labels.*before the grid"),
    "axes": (lambda: crf()(image(), logits(2, 2)), ValueError, "spatial_dims="),
    "image without channels": (lambda: crf()(image()[0], logits()), ValueError, "image has shape.*channels"),
    "integer logits": (lambda: crf()(image(), logits().long()), TypeError, "int64.*floating point"),
    "numpy logits": (lambda: crf()(image(), logits().numpy()), TypeError, "torch tensor"),
    "nan": (lambda: crf()(image(), logits() * float("nan")), ValueError, "NaN"),
    "nan image": (lambda: crf()(image() * float("nan"), logits()), ValueError, "NaN"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_what_was_expected(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_forbidden_and_forced_labels_keep_finite_gradients():
    layer = crf(learnable=LEARNABLE, skip=0.5)
    z = logits(2)
    z[0, 1, :2] = -torch.inf
    z[1, 2, 0, 0] = torch.inf
    z.requires_grad_()
    answer = layer(image(2), z)
    assert torch.isfinite(answer).all()
    assert (answer.exp()[0, 1, :2] < 1e-6).all() and answer.exp()[1, 2, 0, 0].item() > 1 - 1e-6
    answer.exp().square().sum().backward()
    for p in (z, *layer.parameters()):
        assert torch.isfinite(p.grad).all()


@pytest.mark.parametrize("solver", ["lp-meshi", "lp-trw", solvers.get("lp-bethe")])
def test_solvers_of_graphs_are_refused(solver):
    with pytest.raises(ValueError, match=r"sparse graph; expected one of mf, .*SparseMRF"):
        DenseCRF(3, solver=solver)


def test_learned_steps_need_gradients_of_the_steps():
    with pytest.raises(ValueError, match=r"expected gradient='unrolled'.*fixed point"):
        DenseCRF(3, learnable=("steps",), gradient="implicit")
    assert DenseCRF(3, learnable=("steps",), gradient="checkpoint").raw_steps.requires_grad
