"""The losses, each against its definition."""

import math
from itertools import pairwise, product

import pytest
import torch
from crfs import GRID, L, crf, image, kernels, logits
from scipy.ndimage import distance_transform_edt

from fwcrf.kernels import Bilateral, Gaussian, Spatial
from fwcrf.losses import boundary_cross_entropy, boundary_weights, energy, gated_energy, lovasz_softmax

N = 20


def probabilities(*batch, **more):
    return logits(*batch, **more).softmax(-3)


@pytest.mark.parametrize("with_logits", [False, True])
def test_is_the_energy_per_pixel_averaged_over_the_batch(with_logits):
    photo, x, z = image(3), probabilities(3), logits(3, seed=4)
    E = crf().energy(photo, z if with_logits else torch.zeros_like(z))
    each = E.value(x.flatten(2).mT) / N
    given = {"logits": z} if with_logits else {}
    torch.testing.assert_close(energy(photo, x, kernels(), reduction="none", **given), each)
    torch.testing.assert_close(energy(photo, x, kernels(), **given), each.mean())
    torch.testing.assert_close(energy(photo, x, kernels(), reduction="sum", **given), each.sum())


def test_gradient_is_that_of_the_energy():
    photo, z = image(3), logits(3, seed=4)
    x = probabilities(3).requires_grad_()
    energy(photo, x, kernels(), logits=z, reduction="sum").backward()
    expected = crf().energy(photo, z).grad(x.detach().flatten(2).mT.contiguous()) / N
    torch.testing.assert_close(x.grad, expected.mT.unflatten(-1, GRID))


def test_gradcheck_in_probabilities_image_and_compatibility():
    inputs = (
        image(1).requires_grad_(),
        probabilities(1).requires_grad_(),
        torch.rand(L, L, dtype=torch.float64).requires_grad_(),
    )
    assert torch.autograd.gradcheck(lambda photo, x, M: energy(photo, x, kernels(), M), inputs)


def test_is_not_negative_for_potts_and_zero_for_one_label():
    one = torch.zeros(2, L, *GRID).double()
    one[:, 1] = 1
    assert float(energy(image(2), one, kernels("exact"))) == pytest.approx(0.0, abs=1e-12)
    for seed in range(5):
        x = (5 * logits(2, seed=seed)).softmax(1)
        value = float(energy(image(2), x, kernels("exact")))
        assert 0 <= value <= 0.5 * (0.8 + 1.5)


def test_training_a_point_lowers_it_and_smooths():
    photo, z = image(dtype=torch.float32), logits(dtype=torch.float32).requires_grad_()
    optimizer = torch.optim.SGD([z], lr=20.0)
    values = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = energy(photo, z.softmax(0), kernels())
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert values[-1] < 0.5 * values[0]


def test_default_kernel_is_the_bilateral_one():
    photo, x = 255 * image(grid=(6, 7)), probabilities(grid=(6, 7))
    torch.testing.assert_close(energy(photo, x), energy(photo, x, [Bilateral(80, 13)]))


@pytest.mark.parametrize("grid", [(9,), (2, 3, 4)], ids=str)
def test_any_number_of_grid_axes(grid):
    d = len(grid)
    photo, x = image(2, grid=grid), logits(2, grid=grid).softmax(1)
    value = energy(photo, x, [Spatial(1.2)], spatial_dims=d, reduction="none")
    looped = [energy(i, p, [Spatial(1.2)], spatial_dims=d) for i, p in zip(photo, x, strict=True)]
    torch.testing.assert_close(value, torch.stack(looped))


def test_features_of_ones_own():
    photo, x = image(2, channels=4), probabilities(2)
    value = energy(photo, x, [Gaussian()])
    K = Gaussian(method="lattice").operator(photo.flatten(2).mT.contiguous()).without_self_edges().to_dense()
    flat = x.flatten(2).mT
    expected = 0.5 * torch.einsum("bis,bij,bjt,st->b", flat, K, flat, 1 - torch.eye(L).double()) / N
    torch.testing.assert_close(value, expected.mean())


# --- with gates and windows ------------------------------------------------------------------------


def gates(*batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(*batch, *GRID, generator=generator, dtype=torch.float64) for _ in range(2))


def test_the_energy_is_half_the_dense_crf_loss():
    """sum_s <x_s, K (1 - x_s)>, with K without its diagonal."""
    photo, x, kernel = image(), probabilities(), Bilateral(2.9, 0.4, method="exact")
    K = kernel.operator(photo).without_self_edges().to_dense()
    flat = x.flatten(1)
    loss = sum(xs @ K @ (1 - xs) for xs in flat)
    torch.testing.assert_close(energy(photo, x, [kernel]), loss / (2 * N))


def test_without_gates_and_with_a_large_window_it_is_the_energy():
    photo, x = image(2), probabilities(2)
    for compatibility in (1.0, torch.rand(L, L, dtype=torch.float64)):
        plain = energy(photo, x, kernels("exact"), compatibility, reduction="none")
        for radius in (None, 5, 100):
            found = gated_energy(photo, x, kernels("exact"), compatibility, radius=radius, reduction="none")
            torch.testing.assert_close(found, plain)
    torch.testing.assert_close(gated_energy(photo, x, kernels(), radius=None), energy(photo, x, kernels()))


@pytest.mark.parametrize("normalization", ["symmetric", "none"])
@pytest.mark.parametrize("weight", [1.5, [0.5, 1.0, 2.0]], ids=str)
def test_gates_and_window_as_defined(normalization, weight):
    """One pair of pixels after the other."""
    photo, x, (t, s) = image(), probabilities(), gates()
    xy, color, radius = 1.7, 0.4, 2
    K = torch.zeros(N, N).double()
    places = list(product(range(GRID[0]), range(GRID[1])))
    for (i, a), (j, b) in product(enumerate(places), repeat=2):
        if max(abs(a[0] - b[0]), abs(a[1] - b[1])) <= radius:
            apart = ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / xy**2
            colours = (photo[:, a[0], a[1]] - photo[:, b[0], b[1]]).square().sum() / color**2
            K[i, j] = math.exp(-0.5 * (apart + float(colours)))
    if normalization == "symmetric":
        K = K / (K.sum(0)[:, None] * K.sum(0)).sqrt()
    w = torch.tensor(weight).double().expand(L)
    M = 0.5 * (w[:, None] + w) * (1 - torch.eye(L).double())
    value = sum(
        t[places[i]] * s[places[j]] * K[i, j] * (x[(..., *places[i])] @ M @ x[(..., *places[j])])
        for i, j in product(range(N), repeat=2)
        if i != j
    )
    kernel = Bilateral(xy, color, weight=weight, normalization=normalization)
    found = gated_energy(photo, x, [kernel], target=t, source=s, radius=radius)
    torch.testing.assert_close(found, value / (2 * t.sum()))


@pytest.mark.parametrize("radius", [2, None])
def test_gradcheck_of_the_gated_energy(radius):
    t, s = gates(2)
    inputs = (
        image(2).requires_grad_(),
        probabilities(2).requires_grad_(),
        torch.rand(L, L, dtype=torch.float64).requires_grad_(),
        t.requires_grad_(),
    )

    def loss(photo, x, M, gate):
        return gated_energy(photo, x, kernels(), M, target=gate, source=s, radius=radius)

    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize("radius", [2, None])
def test_closed_gates_leave_pixels_out(radius):
    x = probabilities(2).requires_grad_()
    known = torch.arange(GRID[1]).expand(GRID) < 2
    gated_energy(
        image(2), x, kernels(), source=known, target=~known, radius=radius, reduction="sum"
    ).backward()
    elsewhere = x.grad.clone()
    x.grad = None
    shut = torch.zeros(GRID, dtype=torch.bool)
    value = gated_energy(image(2), x, kernels(), source=shut, target=shut, radius=radius)
    value.backward()
    assert value.item() == 0 and not x.grad.any()
    # Pixels on the right are pulled to pixels on the left, and not to each other.
    assert elsewhere.abs().sum() > 0
    far = torch.zeros(GRID, dtype=torch.bool)
    far[:, 4] = True
    x.grad = None
    gated_energy(image(2), x, kernels(), source=known, target=far, radius=2, reduction="sum").backward()
    assert not x.grad.any()


@pytest.mark.parametrize("grid", [(9,), (2, 3, 4)], ids=str)
def test_windows_over_any_number_of_grid_axes(grid):
    d = len(grid)
    photo, x = image(2, grid=grid), logits(2, grid=grid).softmax(1)
    given = {"spatial_dims": d, "reduction": "none"}
    whole = energy(photo, x, [Spatial(1.2)], **given)
    torch.testing.assert_close(gated_energy(photo, x, [Spatial(1.2)], radius=9, **given), whole)


# --- Lovasz-softmax --------------------------------------------------------------------------------


def truth(*batch, seed=3, void=0.2, labels=L, grid=GRID):
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(labels, (*batch, *grid), generator=generator)
    return found.masked_fill(torch.rand(found.shape, generator=generator) < void, -100)


def lovasz_by_level_sets(p, y, classes):
    """The integral over t of one minus the IoU of the pixels with an error above t, mean over classes."""
    values = []
    for c in classes:
        Y = y == c
        m = torch.where(Y, 1 - p[c], p[c])
        levels = torch.cat([m, torch.tensor([0.0, 1.0]).double()]).unique()
        total = torch.zeros(()).double()
        for low, high in pairwise(levels):
            M = m > 0.5 * (low + high)
            total += (high - low) * (M.sum() / (M | Y).sum() if M.any() else 0.0)
        values.append(total)
    return torch.stack(values).mean()


def test_lovasz_is_the_integral_over_level_sets():
    p, y = (3 * logits(3)).softmax(1), truth(3)
    y[0][y[0] == 1] = 0  # a class that one image does not have
    kept = [y[i] != -100 for i in range(3)]
    together = (
        torch.cat([p[i][:, kept[i]] for i in range(3)], 1),
        torch.cat([y[i][kept[i]] for i in range(3)]),
    )
    torch.testing.assert_close(lovasz_softmax(p, y), lovasz_by_level_sets(*together, range(L)))
    each = [lovasz_by_level_sets(p[i][:, kept[i]], y[i][kept[i]], y[i][kept[i]].unique()) for i in range(3)]
    torch.testing.assert_close(lovasz_softmax(p, y, per_image=True), torch.stack(each).mean())
    torch.testing.assert_close(lovasz_softmax(p[0], y[0]), each[0])
    every = lovasz_by_level_sets(p[0][:, kept[0]], y[0][kept[0]], range(L))
    torch.testing.assert_close(lovasz_softmax(p[0], y[0], classes="all"), every)
    assert float(every) != float(each[0])


def test_lovasz_of_certain_labels_is_one_minus_the_mean_iou():
    y, found = truth(2, void=0.1), truth(2, void=0.0, seed=4)
    p = torch.nn.functional.one_hot(found, L).movedim(-1, 1).double()
    counted = y != -100
    ious = []
    for c in range(L):
        both = ((y == c) & (found == c)).sum()
        ious.append(both / (((y == c) | (found == c)) & counted).sum())
    assert float(lovasz_softmax(p, y)) == pytest.approx(1 - float(torch.stack(ious).mean()), abs=1e-6)
    assert float(lovasz_softmax(p, found)) == 0


@pytest.mark.parametrize("per_image", [False, True])
def test_gradcheck_of_lovasz(per_image):
    p, y = probabilities(2).requires_grad_(), truth(2)
    assert torch.autograd.gradcheck(lambda p: lovasz_softmax(p, y, per_image=per_image), (p,))


def test_lovasz_is_convex_in_the_probabilities():
    y = truth(1)
    for seed in range(10):
        a, b = probabilities(1, seed=seed), probabilities(1, seed=seed + 20)
        ends = 0.5 * (lovasz_softmax(a, y) + lovasz_softmax(b, y))
        assert float(lovasz_softmax(0.5 * (a + b), y)) <= float(ends) + 1e-12


def test_lovasz_without_labels_is_zero_with_a_gradient():
    p = probabilities(2).requires_grad_()
    value = lovasz_softmax(p, torch.full((2, *GRID), -100))
    value.backward()
    assert value.item() == 0 and not p.grad.any()
    y = truth(2)
    y[1] = 255
    torch.testing.assert_close(
        lovasz_softmax(p, y.masked_fill(y == -100, 255), per_image=True, ignore_index=255),
        lovasz_softmax(p[:1], y[:1]),
    )


# --- cross-entropy near borders --------------------------------------------------------------------


def test_weights_are_of_the_distance_to_another_label():
    y = truth(2, void=0.3, grid=(13, 11))
    y[1, :, :6] = y[1, :, 5:6]  # wide regions too
    weights = boundary_weights(y, strength=2.5, width=1.3, dtype=torch.float64)
    for one, found in zip(y, weights, strict=True):
        for c in range(L):
            apart = torch.from_numpy(distance_transform_edt(~((one != c) & (one != -100)).numpy()))
            expected = 1 + 2.5 * torch.exp(-(apart**2) / (2 * 1.3**2))
            torch.testing.assert_close(found[one == c], expected[one == c], atol=1e-7, rtol=0)
        assert not found[one == -100].any()


def test_a_truth_of_one_label_has_no_border():
    y = torch.full((6, 7), 2)
    y[0] = -100
    weights = boundary_weights(y)
    assert (weights[1:] == 1).all() and not weights[0].any()
    volume = torch.zeros(2, 3, 4, 5, dtype=torch.long)
    volume[:, 1:] = 1
    assert (
        boundary_weights(volume, spatial_dims=3)[0, :, 0, 0].tolist()
        == boundary_weights(torch.tensor([0, 1, 1]), spatial_dims=1).tolist()
    )


def test_is_the_weighted_mean_of_the_cross_entropy():
    z, y = logits(2), truth(2)
    plain = torch.nn.functional.cross_entropy(z, y, reduction="none")
    w = boundary_weights(y, dtype=torch.float64)
    torch.testing.assert_close(boundary_cross_entropy(z, y), (w * plain).sum() / w.sum())
    torch.testing.assert_close(boundary_cross_entropy(z, y, reduction="none"), w * plain)
    torch.testing.assert_close(
        boundary_cross_entropy(z, y, strength=0.0), torch.nn.functional.cross_entropy(z, y)
    )
    classes = torch.tensor([0.5, 1.0, 3.0]).double()
    torch.testing.assert_close(
        boundary_cross_entropy(z, y, strength=0.0, weight=classes),
        torch.nn.functional.cross_entropy(z, y, weight=classes),
    )


def test_gradcheck_of_the_cross_entropy_near_borders():
    z, y = logits(2).requires_grad_(), truth(2)
    assert torch.autograd.gradcheck(lambda z: boundary_cross_entropy(z, y), (z,))
    void = torch.full_like(y, -100)
    value = boundary_cross_entropy(z, void)
    (g,) = torch.autograd.grad(value, z)
    assert value.item() == 0 and not g.any()


@pytest.mark.parametrize(
    "loss",
    [
        lambda z, y: lovasz_softmax(z.softmax(1), y),
        lambda z, y: boundary_cross_entropy(z, y),
        lambda z, y: gated_energy(image(2, dtype=torch.float32), z.softmax(1), kernels(), radius=2),
    ],
    ids=["lovasz", "boundary", "gated"],
)
def test_half_precision_is_computed_in_float32(loss):
    z, y = logits(2, dtype=torch.float32), truth(2)
    full, half = loss(z, y), loss(z.half(), y)
    assert half.dtype == torch.float32
    assert float(half) == pytest.approx(float(full), rel=3e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lovasz_softmax(logits(2), truth(2)), "values from .* expected 0 to 1.*softmax"),
        (lambda: lovasz_softmax(probabilities(2), truth(2), classes="some"), "classes='some'"),
        (lambda: lovasz_softmax(probabilities(2)[:, :1], truth(2, labels=1)), "one label.*torch.cat"),
        (lambda: lovasz_softmax(probabilities(2), truth(2, labels=5)), "target has 4; expected .* 0 to 2"),
        (lambda: boundary_cross_entropy(logits(2), truth()), r"target has shape \(4, 5\).*\(2, 4, 5\)"),
        (lambda: boundary_cross_entropy(logits(), truth(), width=0.0), "width"),
        (lambda: boundary_cross_entropy(logits(), truth(), weight=torch.ones(2)), "weight has shape"),
        (lambda: boundary_weights(truth(2, 3)), "2 grid axes"),
        (lambda: gated_energy(image(), probabilities(), source=torch.ones(3, 3)), "source is of .3, 3."),
        (lambda: gated_energy(image(), probabilities(), radius=0), "radius"),
        (
            lambda: gated_energy(image(), probabilities(), [Bilateral(normalization="before")]),
            "'before' with a window",
        ),
        (lambda: gated_energy(image(), probabilities(), reduction="median"), "reduction='median'"),
        (lambda: energy(image(), probabilities(), reduction="median"), "reduction='median'"),
        (lambda: energy(image(grid=(3, 3)), probabilities()), "image has shape.*probabilities .*grid"),
        (lambda: energy(image(), probabilities(), logits=logits(labels=4)), "logits has shape.*4 labels"),
        (lambda: energy(image(), probabilities(), compatibility=torch.eye(4)), "compatibility has shape"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_target_of_floats_is_refused():
    with pytest.raises(TypeError, match=r"target is of torch.float64; .*\.long\(\)"):
        lovasz_softmax(probabilities(), truth().double())
